"""Runnable jobs: the enrichment of flights, and the demo that kills it and proves its result.

Owns: what a job reads, how it transforms it, how it is configured.
Does not know: how a micro-batch becomes exactly once (`connector`).
"""
