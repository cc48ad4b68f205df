"""Kafka's messages, frames and error codes; what both ends use of kafka-python's messages."""
