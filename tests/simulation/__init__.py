"""Histories of crashes, cuts and delays in virtual time, each from a seed: `make simulate`."""
