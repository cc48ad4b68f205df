"""Requests that change or describe something, one by one: transactions, topics, rights, producers."""
