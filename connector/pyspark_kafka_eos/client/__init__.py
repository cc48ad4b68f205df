"""Sockets out: the transactional, idempotent client. Its connections are its own (`net`), its messages
kafka-python's.
"""
