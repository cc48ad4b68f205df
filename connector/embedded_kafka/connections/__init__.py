"""Sockets in: the listener, a connection, and how much of what came may wait."""
