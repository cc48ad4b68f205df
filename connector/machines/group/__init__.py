"""One consumer group of the classic protocol."""
