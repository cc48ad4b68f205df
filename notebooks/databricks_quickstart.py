# Databricks notebook source
# MAGIC %md
# MAGIC # Exactly-once micro-batches from Spark to Kafka: quickstart
# MAGIC
# MAGIC A stream reads orders from one topic and writes them to another. It is stopped in the middle of a micro-batch and
# MAGIC started again. Then a client that shares no code with the connector (confluent-kafka) counts: every order is there once.
# MAGIC
# MAGIC Without `bootstrap_servers` the notebook starts a Kafka broker of its own, in Python, on 127.0.0.1. Executors on other
# MAGIC machines cannot reach that one: on a cluster with workers, and on serverless, give it the address of your brokers.
# MAGIC `docs/databricks.md` says what differs there.

# COMMAND ----------

# MAGIC %pip install "pyspark-kafka-eos[demo]"

# COMMAND ----------

# MAGIC %md
# MAGIC ## Settings
# MAGIC
# MAGIC Widgets on Databricks, environment variables elsewhere.
# MAGIC `directory` keeps the checkpoint: on Databricks a Unity Catalog volume such as `/Volumes/main/default/streams`.

# COMMAND ----------

import json
import os
import tempfile
import time
from collections import Counter

DEFAULTS = {"bootstrap_servers": "", "directory": ""}

dbutils = globals().get("dbutils")
if dbutils is None:
    settings = {name: os.environ.get(name.upper(), default) for name, default in DEFAULTS.items()}
else:
    for name, default in DEFAULTS.items():
        dbutils.widgets.text(name, default)
    settings = {name: dbutils.widgets.get(name) for name in DEFAULTS}

# COMMAND ----------

# MAGIC %md
# MAGIC ## Spark and Kafka

# COMMAND ----------

from pyspark.sql import SparkSession

from embedded_kafka.embedded import EmbeddedKafka
from embedded_kafka.real.java import require_java

if dbutils is None:
    # Finds a Java for Spark where JAVA_HOME names none.
    os.environ.update(require_java().environ())
spark = SparkSession.builder.getOrCreate()

broker = None if settings["bootstrap_servers"] else EmbeddedKafka().start()
servers = settings["bootstrap_servers"] or broker.bootstrap_servers
directory = settings["directory"] or tempfile.mkdtemp(prefix="quickstart-")
print(f"Spark {spark.version}, Kafka at {servers}, checkpoint under {directory}")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Two topics, and 40,000 orders in the first
# MAGIC
# MAGIC Written by confluent-kafka. The names are new in every run, so the notebook can be run again on real brokers.

# COMMAND ----------

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

ORDERS = 40_000
run = f"{int(time.time())}"
given, clean, pipeline = f"orders-{run}", f"orders-clean-{run}", f"clean-orders-{run}"

admin = AdminClient({"bootstrap.servers": servers})
for made in admin.create_topics([NewTopic(name, num_partitions=2) for name in (given, clean)]).values():
    made.result(60)

producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "queue.buffering.max.messages": ORDERS})
for number in range(ORDERS):
    producer.produce(given, json.dumps({"id": number, "customer": f"c{number % 97}"}), f"c{number % 97}")
assert producer.flush(60) == 0

# COMMAND ----------

# MAGIC %md
# MAGIC ## The stream
# MAGIC
# MAGIC The same words as for Spark's own `format("kafka")`, and `pipeline`: the stable name of this output, to be kept for as long as the
# MAGIC checkpoint. The sink reads the batch's source offsets in the checkpoint, and commits them with the batch.
# MAGIC
# MAGIC `validate` asks the brokers before there is a query what its first batch would find: their versions, rights, timeouts, topics.
# MAGIC
# MAGIC A reader sees each task's part of a batch at its own instant, within milliseconds of each other, and all or nothing of the batch in the
# MAGIC end. Where the whole batch has to appear at one instant, there is `transaction.scope=batch`.

# COMMAND ----------

from pyspark_kafka_eos import ExactlyOnceWriter

checkpoint = f"{directory}/{pipeline}"
kafka = {"kafka.bootstrap.servers": servers}
source = {**kafka, "subscribe": given, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 5_000}
sink = {**kafka, "topic": clean, "pipeline": pipeline}

ExactlyOnceWriter(sink).validate(spark)


def start():
    """Start the stream: the first time, and every time after that, it is the same call."""
    orders = spark.readStream.format("kafka_eos").options(**source).load()
    cleaned = orders.selectExpr("key", "upper(cast(value AS string)) AS value")
    written = cleaned.writeStream.format("kafka_eos").options(**sink)
    return written.option("checkpointLocation", checkpoint).start()


# COMMAND ----------

# MAGIC %md
# MAGIC ## Start, and stop in the middle
# MAGIC
# MAGIC The stream is stopped at a moment at which records are written and not yet visible to `read_committed` readers.

# COMMAND ----------

from confluent_kafka import Consumer, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

PARTITIONS = range(2)
LEVELS = {
    "read_committed": IsolationLevel.READ_COMMITTED,
    "read_uncommitted": IsolationLevel.READ_UNCOMMITTED,
}
# These consumers join no group and commit nothing. The first only asks what the group has.
reader = {"bootstrap.servers": servers, "enable.auto.commit": False}
group = Consumer({**reader, "group.id": pipeline, "isolation.level": "read_uncommitted"})


def ends(topic, level="read_uncommitted"):
    """Each partition's end, as a reader of this isolation level has it."""
    asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in PARTITIONS}
    answers = admin.list_offsets(asked, isolation_level=LEVELS[level], request_timeout=60)
    return {where.partition: answer.result().offset for where, answer in answers.items()}


def committed():
    """Each partition's offset that the consumer group has committed."""
    try:
        answer = group.committed([TopicPartition(given, number) for number in PARTITIONS], 60)
    except KafkaException as failure:
        # The group's coordinator may still be starting.
        if not failure.args[0].retriable():
            raise
        return {}
    return {each.partition: each.offset for each in answer if each.offset >= 0}


def done():
    """Orders that the consumer group says are done."""
    return sum(committed().values())


def waiting():
    """Offsets that are written and not visible. Asked in this order the number may be too small, never too large."""
    written, visible = ends(clean), ends(clean, "read_committed")
    return sum(max(0, written[number] - visible[number]) for number in PARTITIONS)


def read_all(topic, level):
    """Key and value of every record that a reader of this isolation level sees up to the end that the topic has now."""
    consumer = Consumer({**reader, "group.id": "proof", "isolation.level": level, "enable.partition.eof": True})
    unread = set(consumer.list_topics(topic, 60).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, number, 0) for number in unread])
    while unread:
        for message in consumer.consume(10_000, timeout=0.2):
            if message.error() is None:
                yield message.key(), message.value()
            elif message.error().name() == "_PARTITION_EOF":
                unread.discard(message.partition())
            else:
                raise KafkaException(message.error())
    consumer.close()


query = start()
while done() == 0:
    assert query.isActive, query.exception()
    time.sleep(0.1)
while (hidden := waiting()) == 0 and done() < ORDERS:
    assert query.isActive, query.exception()
    time.sleep(0.005)
query.stop()
print(f"stopped with {hidden:,} offsets written and not visible; {done():,} of {ORDERS:,} orders are committed")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Start again
# MAGIC
# MAGIC With the same checkpoint and the same pipeline. The batch that was given up is done again; had it been decided, it would be
# MAGIC finished instead.

# COMMAND ----------

query = start()
query.processAllAvailable()
query.stop()

# COMMAND ----------

# MAGIC %md
# MAGIC ## The proof
# MAGIC
# MAGIC librdkafka reads the output. What was given up is in the topic's log, and no `read_committed` reader ever sees it.

# COMMAND ----------

times = Counter(json.loads(value)["ID"] for _, value in read_all(clean, "read_committed"))
uncommitted = sum(1 for _ in read_all(clean, "read_uncommitted"))
print(f"orders in: {ORDERS:,}")
print(f"orders out: {len(times):,}, more than once: {sum(count > 1 for count in times.values()):,}")
print(f"records of aborted transactions, invisible: {uncommitted - sum(times.values()):,}")

assert times == Counter(range(ORDERS))
assert committed() == ends(given)
print("PROVEN: every order is in the output exactly once, and the consumer group stands at the input's end.")

# COMMAND ----------

# MAGIC %md
# MAGIC ## The ledger
# MAGIC
# MAGIC One compacted topic has the newest decision of every pipeline: which batch, who wrote how much, and from which offsets. It
# MAGIC is part of the same commit, and what a restart goes by. Decisions have the pipeline's name as their key; what else stands
# MAGIC there are notes about them.

# COMMAND ----------

ledger = read_all("exactly-once-ledger", "read_committed")
decision = [json.loads(value) for key, value in ledger if key == pipeline.encode()][-1]
print(f"batch {decision['batch_id']} of query {decision['query_id']}, repaired {decision['repaired']} times")
print(f"source offsets: {decision['source_offsets']}")
for seal in decision["seals"]:
    print(json.dumps(seal))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Tidy up
# MAGIC
# MAGIC The connector keeps its connections for the next query, and confluent-kafka's clients keep theirs. Left alone they would report, again
# MAGIC and again, that the broker is gone.

# COMMAND ----------

import logging

group.close()
admin = producer = None
if broker is not None:
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    broker.stop()
