"""Committed records of Kafka to files, each exactly once.

    spark-submit spark_jobs/consume.py --conf-file conf/consume.yaml

The same job as `kafka-eos job consume`, for spark-submit, which takes a script.
"""

from __future__ import annotations

import sys

from pyspark_kafka_eos.jobs.config import ConsumeConfig
from pyspark_kafka_eos.jobs.consume import prepare
from pyspark_kafka_eos.jobs.job import main

if __name__ == "__main__":
    sys.exit(main(prepare, ConsumeConfig, __doc__))
