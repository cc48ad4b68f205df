"""Tests of what the connector and the embedded broker share."""
