"""`python -m connector.cli`: the same as `kafka-eos`."""

from __future__ import annotations

import sys

from connector.cli import main

if __name__ == "__main__":
    sys.exit(main())
