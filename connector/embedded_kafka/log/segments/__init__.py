"""A log's files: segments, their indexes, snapshots of producers, and swapping files safely."""
