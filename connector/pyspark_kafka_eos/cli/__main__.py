"""`python -m pyspark_kafka_eos.cli`: the same as `kafka-eos`."""

from __future__ import annotations

import sys

from pyspark_kafka_eos.cli import main

if __name__ == "__main__":
    sys.exit(main())
