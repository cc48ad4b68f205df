"""Commit of one micro-batch, in either scope."""
