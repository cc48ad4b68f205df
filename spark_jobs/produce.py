"""Any streaming source to Kafka, every micro-batch exactly once.

    spark-submit spark_jobs/produce.py --conf-file conf/produce.yaml

The same job as `kafka-eos job produce`, for spark-submit, which takes a script.
"""

from __future__ import annotations

import sys

from pyspark_kafka_eos.jobs.config import ProduceConfig
from pyspark_kafka_eos.jobs.job import main
from pyspark_kafka_eos.jobs.produce import prepare

if __name__ == "__main__":
    sys.exit(main(prepare, ProduceConfig, __doc__))
