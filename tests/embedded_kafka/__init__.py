"""Tests of the embedded broker, in folders as its packages."""
