"""Kafka's frames as a broker reads and writes them."""
