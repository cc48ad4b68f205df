"""Kafka to Kafka by SQL expressions, every micro-batch with its source offsets exactly once.

    spark-submit spark_jobs/transform.py --conf-file conf/transform.yaml

The same job as `kafka-eos job transform`, for spark-submit, which takes a script.
"""

from __future__ import annotations

import sys

from pyspark_kafka_eos.jobs.config import TransformConfig
from pyspark_kafka_eos.jobs.job import main
from pyspark_kafka_eos.jobs.transform import prepare

if __name__ == "__main__":
    sys.exit(main(prepare, TransformConfig, __doc__))
