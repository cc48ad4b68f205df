"""Faults that a test injects: what is asked for, when one fires, and what it makes of answers."""
