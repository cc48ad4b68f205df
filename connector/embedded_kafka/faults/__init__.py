"""Faults that a test injects: what is asked for, when one fires, and how an older or lagging leader answers."""
