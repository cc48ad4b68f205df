"""Runs a job of pyspark-kafka-eos under spark-submit, which takes a script; the same as `kafka-eos job`.

spark-submit job.py transform --conf-file transform.yaml
"""

import sys

from pyspark_kafka_eos.jobs.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
