"""Writing: the session of a producer, its sequence numbers, and the delivery of packed batches."""
