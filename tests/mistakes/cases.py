"""The 44 mistakes: what each was told when they were first made by hand, and what it has to be told now.

Owns: how each is made, the words that its first line has to have.
Does not know: Spark's texts, beyond that a refusal of Spark's own is one.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from unittest import mock

from pyspark.sql import DataFrame

from pyspark_kafka_eos import ExactlyOnceWriter
from tests.mistakes.scene import Scene

SERVERS = "kafka.bootstrap.servers"
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";'
SASL = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": PLAIN,
}
MSK_IAM = {
    "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "AWS_MSK_IAM",
    "kafka.sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
    "kafka.sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
}  # fmt: skip
SPARKS = "Spark's own"
DEFAULT_CHECKPOINT = "spark.sql.streaming.checkpointLocation"


@dataclass(frozen=True)
class Mistake:
    """`before`: seconds, and whether what, why and what to do were said. `kind`: the class of the error now, None where
    the query goes on, `SPARKS` where Spark refuses. `words`: each stands in the first line, of the error or of what is
    noted.
    """

    numbers: str
    made: str
    before: str
    act: Callable[[Scene], str | None]
    kind: str | None
    words: tuple[str, ...]


def _write(*without: str, **options: str) -> Callable[[Scene], None]:
    return lambda scene: scene.write(None, *without, **options)


def _rows(*columns: str, **options: str) -> Callable[[Scene], None]:
    return lambda scene: scene.write(scene.rows(*columns), **options)


def _records(**options: str) -> Callable[[Scene], None]:
    return lambda scene: scene.write(scene.records(**options))


def _checkpoint_of_the_session(scene: Scene) -> None:
    scene.spark.conf.set(DEFAULT_CHECKPOINT, scene.checkpoint())
    try:
        scene.write(None, "checkpointLocation")
    finally:
        scene.spark.conf.unset(DEFAULT_CHECKPOINT)


def _complete(scene: Scene) -> None:
    counted = scene.rows("value").groupBy("value").count().selectExpr("cast(value as string) as value")
    scene.write(counted, mode="complete")


def _second_query(scene: Scene) -> None:
    with scene.running(pipeline="shared"):
        scene.write(pipeline="shared")


def _other_subscription(scene: Scene) -> None:
    kept = {"pipeline": "subscribes", "checkpointLocation": scene.checkpoint()}
    scene.write(scene.records(subscribe="t1", startingOffsets="earliest"), **kept)
    scene.write(scene.records(subscribe="t2", startingOffsets="earliest"), batches=2, **kept)


def _other_output(scene: Scene) -> str:
    kept = {"pipeline": "moves", "checkpointLocation": scene.checkpoint()}
    scene.write(**kept)
    # The first query may have decided a further batch before it was stopped. The next one ends it without a decision of
    # its own.
    with scene.running(topic="out2", **kept):
        return scene.warnings_of("moves", expected=True)


def _other_name(scene: Scene) -> None:
    kept = {"checkpointLocation": scene.checkpoint()}
    # Else it may be stopped in its next batch, which is committed and which Spark has not noted.
    scene.write(pipeline="first-name", every="1 hour", **kept)
    scene.write(pipeline="second-name", batches=3, **kept)


def _first_frame_empty(scene: Scene) -> str:
    writer = ExactlyOnceWriter({SERVERS: scene.servers, "topic": "out", "pipeline": "begins-empty"})

    def write(frame: DataFrame, batch_id: int) -> None:
        frame = frame.where("cast(value as int) >= 10")
        if frame.isEmpty():
            return
        writer(frame, batch_id)

    with scene.running_function(write, batches=2):
        return scene.warnings_of("begins-empty", expected=True)


def _without_signer(scene: Scene) -> None:
    """The tests' environment has the package. It is hidden in this process, so the options are read by the writer of
    foreachBatch.
    """
    found = importlib.util.find_spec

    def hiding(name: str, package: str | None = None) -> object:
        return None if name.startswith("aws_msk_iam_sasl_signer") else found(name, package)

    with mock.patch("importlib.util.find_spec", hiding):
        ExactlyOnceWriter({SERVERS: scene.servers, "topic": "out", "pipeline": "msk", **MSK_IAM}).validate()


def _batch(mode: str | None) -> Callable[[Scene], None]:
    def act(scene: Scene) -> None:
        frame = scene.spark.createDataFrame([("1",)], "value string")
        writing = frame.write.format("kafka_eos").options(
            **{SERVERS: scene.servers, "topic": "out", "pipeline": "once", "batch.id": "1"}
        )
        (writing if mode is None else writing.mode(mode)).save()

    return act


MISTAKES = (
    Mistake("1", "`pipline=`", "16 s, yyy", _write("pipeline", pipline="x"), "OptionsError", ("pipline is not a known option", "did you mean pipeline?")),
    Mistake("2", "`kafka.compresion.type`", "1.8 s, yyy", _write(**{"kafka.compresion.type": "lz4"}), "OptionsError",
            ("kafka.compresion.type is not a known option", "did you mean kafka.compression.type?")),
    Mistake("3", "a port where nothing listens", "63 s, ynn", _write(**{SERVERS: "127.0.0.1:1", "kafka.max.block.ms": "3000"}), "BrokerUnavailable",
            ("127.0.0.1:1", "ECONNREFUSED", "start a broker there, or correct kafka.bootstrap.servers")),
    Mistake("4", "`kafka.bootstrap.servers` without a port", "1.8 s, yyy", _write(**{SERVERS: "127.0.0.1"}), "OptionsError",
            ("kafka.bootstrap.servers is '127.0.0.1'", "must be host:port")),
    Mistake("5", "a host that is unknown", "62 s, nnn", _write(**{SERVERS: "no-such-host.invalid:9092"}), "OptionsError",
            ("no machine has the name no-such-host.invalid", "correct kafka.bootstrap.servers")),
    Mistake("6", "a setting of Confluent's file, `session.timeout.ms`", "2.8 s, yy-", _write(**{"kafka.session.timeout.ms": "45000"}), None, ()),
    Mistake("7", "`SASL_SSL` on a port without TLS", "63 s, nnn", _write(**SASL | {"kafka.security.protocol": "SASL_SSL"}), "OptionsError",
            ("does not speak TLS", "kafka.security.protocol is SASL_SSL", "connect to the listener with TLS")),
    Mistake("8", "SASL on a listener without it", "1.8 s, ynn", _write(**SASL), "OptionsError", ("takes no login (SASL)", "set it to PLAINTEXT")),
    Mistake("9", "`KafkaClient { ... }` as in a JAAS file", "1.2 s, yyy", _write(**SASL | {"kafka.sasl.jaas.config": "KafkaClient {\n" + PLAIN + "\n};"}),
            "OptionsError", ("kafka.sasl.jaas.config cannot be read", "it must be ... .PlainLoginModule required")),
    Mistake("10", "MSK IAM as copied, without its package", "1.0 s, yyn", _without_signer, "OptionsError",
            ("needs the Python package aws-msk-iam-sasl-signer-python", "pip install 'pyspark-kafka-eos[msk]'")),
    Mistake("11", "Event Hubs' own option", "1.4 s, yyy", _records(**{"eventhubs.connectionString": "Endpoint=sb://x", "subscribe": "t1"}), "OptionsError",
            ("eventhubs.connectionstring is not a known option", "kafka.*")),
    Mistake("12", "`databricks.serviceCredential`", "1.2 s, ynn", _write(**{"databricks.serviceCredential": "c"}), "OptionsError",
            ("databricks.serviceCredential is not supported yet", "kafka.sasl.mechanism=OAUTHBEARER")),
    Mistake("13", "an output topic that is missing", "3.3 s, yyy", _write(topic="nowhere"), "UnknownTopic", ("topic 'nowhere' does not exist", "create it or correct the name")),
    Mistake("14", "no `pipeline`", "1.2 s, yyy", _write("pipeline"), "OptionsError", ("pipeline is missing", "set it to a stable name")),
    Mistake("15", "no checkpoint", "0.1 s, yyy", _write("checkpointLocation"), SPARKS, ("checkpointLocation must be specified",)),
    Mistake("16", "a checkpoint by the session's setting", "1.1 s, yyy", _checkpoint_of_the_session, "OptionsError",
            ("checkpointLocation is missing", "does not pass it", "set .option('checkpointLocation', ...)")),
    Mistake("17", "output mode update", "0.2 s, ynn", lambda scene: scene.write(mode="update"), SPARKS, ("does not support Update mode",)),
    Mistake("18", "output mode complete", "1.9 s, yyy", _complete, "OptionsError", ("outputMode complete", "use outputMode append")),
    Mistake("19", "no column `value`", "1.1 s, yyy", _rows("cast(value as string) as key"), "OptionsError", ("there is no column named value",)),
    Mistake("20", "`value` is a bigint", "1.5 s, yyy", _rows("value"), "OptionsError", ("the column value has type bigint", "it must be string or binary")),
    Mistake("21", "`value` is a struct", "1.5 s, yyy", _rows("struct(value) as value"), "OptionsError", ("the column value has type struct<value:bigint>", "it must be")),
    Mistake("22", "a row with a null topic", "8.2 s, yyy",
            lambda scene: scene.write(scene.rows("cast(value as string) as value", "if(value = 7, null, 'out') as topic"), "topic"), "InvalidRow",
            ("a row has no topic", "set the option topic or give every row one", "row=")),
    Mistake("23", "`subscribe` and `assign`", "0.9 s, yyy", _records(subscribe="t1", assign='{"t1":[0]}'), "OptionsError", ("Only one of", "keep the intended one")),
    Mistake("24", "JSON that is none", "0.7 s, yyy", _records(assign='{"t1":[0}'), "OptionsError", ("assign is", "must be JSON such as")),
    Mistake("25", "`kafka.transaction.timeout.ms=5000`", "0.4 s, yy-", _write(**{"kafka.transaction.timeout.ms": "5000"}), "OptionsError",
            ("kafka.transaction.timeout.ms (5000) leaves no time", "must be more than transaction.margin.ms")),
    Mistake("26", "a timeout above the broker's cap", "1.2 s, yyy", _write(**{"kafka.transaction.timeout.ms": "900001"}), "OptionsError",
            ("900001 is above the broker's transaction.max.timeout.ms=900000", "lower the one or raise the other")),
    Mistake("27", "a second query of one pipeline", "5 s, yyy", _second_query, "PipelineConflict", ("'shared' belongs to another query", "give each its own pipeline name")),
    Mistake("28", "another `subscribe` after a restart", "1.3 s, wrong", _other_subscription, "OptionsError",
            ("the query's checkpoint has offsets of t1, but subscribe is t2 now", "nothing was read", "set subscribe so that t1 is read again")),
    Mistake("29", "another output topic after a restart", "no error, nothing said", _other_output, None, ("wrote to out; from now on it writes to out2",)),
    Mistake("30", "a new checkpoint of one pipeline", "1.1 s, yyy", _write(pipeline="shared"), "PipelineConflict", ("an older checkpoint", "adopt.checkpoint=true once")),
    Mistake("31", "a checkpoint on an HDFS that is away", "2.5 s, Spark's", _write(checkpointLocation="hdfs://127.0.0.1:1/x"), SPARKS, ()),
    Mistake("32", "`df.write` without a mode", "0.0 s, Spark's", _batch(None), SPARKS, ("Append",)),
    Mistake("33", "`df.write` with overwrite", "yyy", _batch("overwrite"), "OptionsError", ('mode("overwrite") is refused', 'Use mode("append")')),
    Mistake("34", "a source topic that is missing", "2.4 s, yyy", _records(subscribe="nowhere"), "UnknownTopic", ("topic 'nowhere' does not exist", "create it or correct the name")),
    Mistake("35", "`kafka.auto.offset.reset`", "0.1 s, yyy", _records(**{"subscribe": "t1", "kafka.auto.offset.reset": "earliest"}), "OptionsError",
            ("kafka.auto.offset.reset has no meaning here", "startingOffsets")),
    Mistake("36", "a record that is too large", "4.4 s, yyy", _rows("repeat('x', 3000) as value", topic="small"), "RecordTooLarge",
            ("larger than its topic allows", "max.message.bytes", "topic=small")),
    Mistake("37", "partition 99", "5.0 s, yy-", _rows("cast(value as string) as value", "99 as partition"), "InvalidRow",
            ("a partition that its topic does not have", "Give an existing one", "partition=99")),
    Mistake("38", "`partition` is a bigint", "0.4 s, yy-", _rows("cast(value as string) as value", "value as partition"), "OptionsError",
            ("the column partition has type bigint", "it must be int")),
    Mistake("39", "`kafka.acks=1`", "1.7 s, yyy", _write(**{"kafka.acks": "1"}), "OptionsError", ("kafka.acks cannot be '1'", "all")),
    Mistake("40", "`kafka.linger.ms`", "1.7 s, yyy, refused", _write(**{"kafka.linger.ms": "5"}), None, ()),
    Mistake("41", "a JKS store that is missing", "1.9 s, JKS refused", _write(**{"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/no/trust.jks"}),
            "OptionsError", ("/no/trust.jks cannot be read on this machine", "every executor need the file")),
    Mistake("42", "a CA file that is missing", "63 s, nnn", _write(**{"kafka.security.protocol": "SSL", "kafka.ssl.ca.location": "/no/ca.pem"}), "OptionsError",
            ("/no/ca.pem cannot be read on this machine", "every executor need the file")),
    Mistake("43", "another `pipeline` after a restart", "–", _other_name, "PipelineConflict",
            ("this query wrote as pipeline 'first-name'", "nothing was written", "set pipeline='first-name' again", "adopt.checkpoint=true once")),
    Mistake("44", "`foreachBatch` whose first frame is empty, `if frame.isEmpty(): return`", "–", _first_frame_empty, None,
            ("does not have batch 0 of this query and goes on with batch 1", "returned without calling the writer", "which is fine")),
)  # fmt: skip
