"""Processes killed at named points and at random moments, and broken brokers, judged by other clients: `make chaos`."""
