"""Kafka's messages, frames and error codes. One of the two importers of kafka-python's messages."""
