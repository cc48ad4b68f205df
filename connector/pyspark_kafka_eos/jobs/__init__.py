"""Runnable jobs in three shapes: produce only, consume-transform-produce, consume only. `kafka-eos job` runs them.

Owns: what a job reads, how it is configured, its process from start to end, the files that `kafka-eos job init` writes.
Does not know: how a micro-batch becomes exactly once.
"""
