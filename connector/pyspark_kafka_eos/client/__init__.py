"""Sockets out: the transactional, idempotent client. The only door to kafka-python's `kafka.net`."""
