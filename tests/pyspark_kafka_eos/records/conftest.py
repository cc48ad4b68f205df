"""Loads kafka-python before pytest turns its use of old importlib functions into errors."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.protocol.metadata  # noqa: F401
