"""Tests of the connector, in folders as its packages."""
