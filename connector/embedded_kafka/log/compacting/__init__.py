"""Cleaning a log: what compaction keeps, what retention deletes, and how segments are written anew."""
