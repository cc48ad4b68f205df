"""Connections to brokers: sockets, TLS, logins, and the loop that serves them."""
