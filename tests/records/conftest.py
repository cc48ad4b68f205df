"""Lets the tests of this directory share `record_rows` (pytest's importlib mode puts no directory on the path), and
loads kafka-python before pytest turns its use of old importlib functions into errors."""

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.protocol.metadata  # noqa: F401
