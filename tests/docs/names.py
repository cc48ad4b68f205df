"""The names of the field on a page, and where each is known from.

Owns: which spans of code are names of settings or classes; the names that come from other projects, each with its place
there.
Does not know: the pages.
"""

from __future__ import annotations

import builtins
import inspect
import re

import embedded_kafka
import pyspark_kafka_eos
from embedded_kafka.settings import settings, topic_configs
from pyspark_kafka_eos.options import documented_options, documented_without_effect, kafka
from pyspark_kafka_eos.slot import dead_letters
from pyspark_kafka_eos.spark import workers
from tests.docs.messages import CLASSES

FOREIGN_SETTINGS = {
    "isolation.level": "Kafka, ConsumerConfig",
    "client.rack": "Kafka, ConsumerConfig",
    "delegation.token.expiry.time.ms": "Kafka, DelegationTokenManagerConfigs",
    "delegation.token.secret.key": "Kafka, DelegationTokenManagerConfigs",
    "remote.fetch.max.wait.ms": "Kafka, RemoteLogManagerConfig",
    "replica.selector.class": "Kafka, ReplicationConfigs",
    "spark.dynamicAllocation.enabled": "Spark, DYN_ALLOCATION_ENABLED",
    "spark.dynamicAllocation.executorIdleTimeout": "Spark, DYN_ALLOCATION_EXECUTOR_IDLE_TIMEOUT",
    "spark.dynamicAllocation.shuffleTracking.enabled": "Spark, DYN_ALLOCATION_SHUFFLE_TRACKING_ENABLED",
    "transaction.timeout.ms": "Kafka, ProducerConfig",
    "unstable.api.versions.enable": "Kafka, ServerConfigs",
    "producer.id.expiration.ms": "Kafka, TransactionLogConfig",
    "transactional.id.expiration.ms": "Kafka, TransactionStateManagerConfig",
    "transaction.version": "Kafka, a feature (KIP-890)",
    "commit.interval.ms": "Kafka Streams, StreamsConfig",
    "processing.guarantee": "Kafka Streams, StreamsConfig",
    "exactly.once.source.support": "Kafka Connect, DistributedConfig",
    "transaction.boundary": "Kafka Connect, SourceTask",
    "spark.pyspark.python": "Spark, core",
    "spark.speculation": "Spark, core",
    "spark.stage.maxConsecutiveAttempts": "Spark, core",
    "spark.redaction.regex": "Spark, core",
    "spark.redaction.string.regex": "Spark, core",
    "spark.sql.redaction.options.regex": "Spark, SQLConf",
    "spark.sql.redaction.string.regex": "Spark, SQLConf",
    "spark.sql.session.timeZone": "Spark, SQL",
    "spark.network.crypto.enabled": "Spark, core",
    "databricks.serviceCredential": "Databricks, its Kafka source",
    "spark.executor.memoryOverhead": "Spark, core",
    "spark.executor.pyspark.memory": "Spark, core",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "Spark, SQLConf",
    "spark.sql.streaming.checkpointLocation": "Spark, SQLConf",
    "spark.yarn.appMasterEnv": "Spark on YARN, the beginning of a setting's name",
    "yarn.resourcemanager.am.max-attempts": "YARN, YarnConfiguration",
}
"""Settings of other projects -> where they are defined."""

FOREIGN_CLASSES = {
    "KafkaSink": "Flink's Kafka connector",
    "TransactionNamingStrategy": "Flink's Kafka connector",
    "KafkaCommitter": "Flink's Kafka connector",
    "CommitRequestImpl": "Flink",
    "DistributedConfig": "Kafka Connect",
    "SourceConnector": "Kafka Connect",
    "SourceTask": "Kafka Connect",
    "StreamsConfig": "Kafka Streams",
    "StreamingQueryException": "Spark",
    "InitProducerId": "Kafka, an API",
    "PlainLoginModule": "Kafka's Java client",
    "ScramLoginModule": "Kafka's Java client",
    "KafkaUser": "Strimzi",
    "DefaultAzureCredential": "azure-identity",
    "NoSuchMethodError": "Java",
}
"""Classes of other projects -> which."""

ALERT = re.compile(r"ExactlyOnce\w+$")

_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_SETTING = re.compile(r"[a-z][\w-]*(?:\.[\w-]+)+")
_FILE = re.compile(r".*\.(?:py|yaml|yml|md|sh|json|conf|jar|xml|so)$")
_OBJECT = re.compile(
    r"(?:df|query|spark|frame|sys)\.\w+|(?:pyspark_kafka_eos|embedded_kafka|kafka_core)\.[\w.]+|spark\.dataSource\.\w+"
)
_CLASS = re.compile(r"[A-Z][a-z]+(?:[A-Z][a-z]*)+")


def settings_on(text: str) -> set[str]:
    """Names of settings in spans of code, without a value."""
    found = set()
    for span in _SPAN.findall(text):
        name = span.partition("=")[0].strip()
        if not _SETTING.fullmatch(name) or _FILE.match(name):
            continue
        if not _OBJECT.fullmatch(name) or name in FOREIGN_SETTINGS:
            found.add(name)
    return found


def classes_on(text: str) -> set[str]:
    """Names of classes in spans of code."""
    return {name for span in _SPAN.findall(text) if _CLASS.fullmatch(name := re.split(r"[.(]", span)[0])}


def known_settings() -> set[str]:
    """Every name of a setting that the code has or that another project is known to have."""
    options = {name for side in ("sink", "source", "ledger") for name, _, _ in documented_options(side)}
    options |= {name for name, _ in documented_without_effect()}
    # Names of Kafka's Java client that are taken, ignored or refused: each is a row.
    options |= {f"kafka.{name}" for rows in (kafka.BOTH, kafka.PRODUCER, kafka.CONSUMER) for name in rows}
    options |= {dead_letters.PREFIX + name for name in re.findall(r'"(\w+)"', inspect.getsource(dead_letters))}
    options.add(f"spark.executorEnv.{workers.SWITCH}")
    return options | set(settings.NAMES) | set(topic_configs.SETTINGS) | set(FOREIGN_SETTINGS)


def known_classes() -> set[str]:
    """Every name of a class that is public here or that another project is known to have."""
    own = {*pyspark_kafka_eos.__all__, *embedded_kafka.__all__, *CLASSES}
    return own | {*FOREIGN_CLASSES} | {name for name in vars(builtins) if name.endswith("Error")}
