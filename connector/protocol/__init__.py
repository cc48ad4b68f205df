"""Kafka's messages and error codes: the only door to kafka-python's `kafka.protocol`."""
