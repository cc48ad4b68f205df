"""Exactly-once micro-batches from Spark to Kafka."""

__version__ = "0.1.0"
