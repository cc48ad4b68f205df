"""`kafka.*` options: which of the Java client's names are used here, which have no effect, which are refused.

Owns: one row for every config of the Java producer and consumer (Kafka 3.9 to 4.4), and its class.
Does not know: how values are read (`translating`), Spark's own options (`sink`, `source`), how TLS and SASL names
combine (`security`).
Invariants:
- A name is used, or accepted because it asks for the fixed behaviour, or accepted without effect and
  reported, or refused with a reason. None is dropped silently.
- A name without effect is accepted only where the records that the user gets, and when they are safe, are
  the same with and without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pyspark_kafka_eos.model import ClientSettings
from pyspark_kafka_eos.options.kinds import Use
from pyspark_kafka_eos.options.login.security import SECURITY_NAMES
from pyspark_kafka_eos.options.values import (
    BYTES,
    FLAG,
    GZIP_LEVEL,
    LZ4_LEVEL,
    MAX_INT,
    MILLISECONDS,
    SERVERS,
    TEXT,
    ZSTD_LEVEL,
    one_of,
    whole_number,
)

Side = Literal["sink", "source", "ledger"]

# ---- the treatment of one name


@dataclass(frozen=True)
class Only:
    """The name has no effect, so it is accepted only with a value that asks for the fixed behaviour."""

    values: tuple[str, ...]
    otherwise: str


@dataclass(frozen=True)
class Ignore:
    """The name has no effect and nobody loses by that: it is accepted with any value and reported with `why`.
    `same`: values that ask for the fixed behaviour, which need no report."""

    why: str
    same: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refuse:
    """The name has no meaning here, and its author would miss its effect; `instead` names the alternative."""

    instead: str


Row = Use | Only | Ignore | Refuse


def _refuse(rows: Mapping[str, str]) -> dict[str, Row]:
    """Rows for `{names separated by spaces: the alternative}`."""
    return {name: Refuse(instead) for names, instead in rows.items() for name in names.split()}


def _ignore(rows: Mapping[str, str]) -> dict[str, Row]:
    """Rows for `{names separated by spaces: the reason}`."""
    return {name: Ignore(why) for names, why in rows.items() for name in names.split()}


_AGAIN = (
    "a request is sent again by the client itself, within kafka.delivery.timeout.ms and kafka.default.api.timeout.ms"
)
_RECONNECT = "the next attempt to connect waits 50 ms, then twice as long each time, up to 1 s"
_CONNECTING = "a connection has 10 s until it can be used, and after failures twice as long each time, up to 30 s"
_NAMES = "each attempt to connect looks the name up anew, and a name that does not exist is an error at once"
_NOT_ANSWERING = "the bootstrap servers are asked again where no broker answers for 5 minutes"
_BUFFERS = "the system sizes the buffers of a connection"
_NO_METRICS = "this client reports no Java metrics"
_METRICS = f"{_NO_METRICS}; leave it out"
_BROKERS = "the broker judges the token; leave it out"
_RENEWED = "tokens are renewed by kafka.sasl.login.refresh.window.factor alone; leave it out"
_JAVA_CLASS = "a Java class cannot be loaded here; leave it out"
_GROUP = "the source joins no consumer group: Spark assigns the partitions"
_FETCH = "the source sizes its own fetches; maxOffsetsPerTrigger bounds a micro-batch"
_FILLED = "batches are filled from the task's rows; kafka.batch.size bounds them"
_SPREAD = "rows without a key are spread evenly; a partition column chooses otherwise"
_OFFSETS = (
    "Spark's checkpoint keeps the offsets; the sink's option offsets.group commits them to a consumer group with "
    "the output"
)
# In lower case, as `Only` compares.
_BYTES_OUT = ("org.apache.kafka.common.serialization.bytearrayserializer",)
_BYTES_IN = ("org.apache.kafka.common.serialization.bytearraydeserializer",)
_CLIENT = ClientSettings(bootstrap_servers=())

BOTH: dict[str, Row] = {
    "bootstrap.servers": Use(
        "bootstrap_servers",
        SERVERS,
        "required",
        "brokers to connect to first, host:port separated by commas; all of one cluster, which `kafka-eos doctor` checks",
    ),
    "client.id": Use("client_id", TEXT, _CLIENT.client_id, "name of this client in the brokers' logs and quotas"),
    "request.timeout.ms": Use(
        "request_timeout_ms", MILLISECONDS, str(_CLIENT.request_timeout_ms), "longest wait for one answer"
    ),
    "default.api.timeout.ms": Use(
        "api_timeout_ms",
        MILLISECONDS,
        str(_CLIENT.api_timeout_ms),
        "longest wait for a definite answer, with all tries and all brokers that are asked",
    ),
    "metadata.max.age.ms": Use(
        "metadata_max_age_ms",
        MILLISECONDS,
        None,
        "refresh interval of topics, partitions and leaders",
    ),
    "connections.max.idle.ms": Use(
        "connections_max_idle_ms",
        MILLISECONDS,
        str(_CLIENT.connections_max_idle_ms),
        "a connection on which nothing has been asked for so long is closed",
    ),
    "client.dns.lookup": Only(("use_all_dns_ips",), "all addresses of a host are tried; leave it out"),
    "enable.metrics.push": Ignore(_NO_METRICS, same=("false",)),
    "metadata.cluster.check.enable": Ignore(
        "another broker, or another cluster's, is never used in place of the one that is meant (KIP-1242)",
        same=("true",),
    ),
    "metadata.recovery.strategy": Ignore(
        "where no known broker can be reached, the bootstrap servers are asked again (KIP-899)", same=("rebootstrap",)
    ),
    **_ignore(
        {
            "retry.backoff.ms retry.backoff.max.ms": _AGAIN,
            "reconnect.backoff.ms reconnect.backoff.max.ms": _RECONNECT,
            "send.buffer.bytes receive.buffer.bytes": _BUFFERS,
            "socket.connection.setup.timeout.ms socket.connection.setup.timeout.max.ms": _CONNECTING,
            "metadata.recovery.rebootstrap.trigger.ms": _NOT_ANSWERING,
            "bootstrap.resolve.timeout.ms": _NAMES,
            "metrics.num.samples metrics.recording.level metrics.sample.window.ms": _NO_METRICS,
            "auto.include.jmx.reporter": _NO_METRICS,
        }
    ),
    **_refuse(
        {
            "metric.reporters": _METRICS,
            "config.providers": "values are taken as they are; read the secret in the job and pass it",
            "interceptor.classes": "interceptors could change records unseen; transform columns in the query",
            "security.providers": _JAVA_CLASS,
            "sasl.login.class": _JAVA_CLASS,
            "ssl.engine.factory.class ssl.keymanager.algorithm ssl.trustmanager.algorithm": _JAVA_CLASS,
            "ssl.provider ssl.secure.random.implementation": _JAVA_CLASS,
            "enable.ssl.certificate.verification": "certificates are always verified; kafka.ssl.ca.location "
            "names the authority to trust",
            "sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.ticket.renew.jitter "
            "sasl.kerberos.ticket.renew.window.factor": "tickets of kafka.sasl.kerberos.keytab are renewed by themselves; those "
            "of the ticket cache by k5start on every machine",
            "sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds sasl.login.refresh.window.jitter "
            "sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms": _RENEWED,
            "sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms "
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url": _BROKERS,
            "sasl.oauthbearer.allow.unverified.audience sasl.oauthbearer.allow.unverified.issuer "
            "sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience": _BROKERS,
            "sasl.oauthbearer.expected.issuer sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name": _BROKERS,
            "enable.sasl.oauthbearer.unsecure.jwt": "give Java's kafka.sasl.jaas.config with unsecuredLoginStringClaim_sub",
            "sasl.oauthbearer.metadata.authentication.type": "set kafka.sasl.oauthbearer.token.provider=azure (a managed "
            "identity's token) or aws-msk-iam",
        }
    ),
}

PRODUCER: dict[str, Row] = {
    "acks": Only(("all", "-1"), "exactly-once needs every in-sync replica: all"),
    "enable.idempotence": Only(("true",), "exactly-once needs the idempotent producer: true"),
    "client.rack": Ignore("writes go to the leader, wherever it is"),
    "retries": Ignore(
        "a batch is sent again until kafka.delivery.timeout.ms, and no retry repeats a record",
        (str(MAX_INT),),
    ),
    "partitioner.ignore.keys": Only(
        ("false",),
        "a row with a key goes where the Java client's default puts it; a partition column chooses",
    ),
    "partitioner.rack.aware": Only(("false",), "rows without a key are spread evenly over all racks"),
    "key.serializer": Only(_BYTES_OUT, "keys are bytes; cast the column in the query"),
    "value.serializer": Only(_BYTES_OUT, "values are bytes; cast the column in the query"),
    "max.in.flight.requests.per.connection": Use(
        "max_in_flight",
        # A broker remembers a producer's last five batches and takes a sixth in flight for a gap.
        whole_number("a whole number", 1, 5),
        None,
        "most unanswered requests to one broker",
    ),
    "delivery.timeout.ms": Use(
        "delivery_timeout_ms",
        MILLISECONDS,
        None,
        "longest time from sending a batch to its acknowledgement, retries included; then the task fails",
    ),
    "max.block.ms": Use(
        "max_block_ms",
        MILLISECONDS,
        None,
        "longest wait at the start for brokers, topics and a producer id",
    ),
    "transaction.timeout.ms": Use(
        "transaction_timeout_ms",
        MILLISECONDS,
        "the broker's cap, at most 900000",
        "longest time from a transaction's first record to its end; then the broker aborts it",
    ),
    "transaction.two.phase.commit.enable": Use(
        "two_phase_commit",
        FLAG,
        None,
        "true: transactions without a timeout if the brokers allow them (KIP-939)",
    ),
    "compression.type": Use(
        "compression",
        one_of("none", "gzip", "snappy", "lz4", "zstd"),
        None,
        "none, gzip, snappy, lz4 or zstd",
    ),
    "compression.gzip.level": Use("gzip_level", GZIP_LEVEL, "6", "of kafka.compression.type=gzip: 1 to 9"),
    "compression.lz4.level": Use(
        "lz4_level",
        LZ4_LEVEL,
        "9",
        "of kafka.compression.type=lz4: 1 to 17; 9 is LZ4's fast mode, as in Java",
    ),
    "compression.zstd.level": Use("zstd_level", ZSTD_LEVEL, "3", "of kafka.compression.type=zstd: -131072 to 22"),
    "batch.size": Use(
        "batch_bytes",
        # Below 1 KiB the batch's header and its request cost more than the records.
        whole_number("a whole number of bytes", 1024),
        None,
        "largest batch of one partition in bytes; the topic's max.message.bytes bounds it too",
    ),
    "max.request.size": Use(
        "max_request_bytes", BYTES, "the topic's max.message.bytes", "largest record and batch in bytes"
    ),
    **_ignore(
        {
            "linger.ms queue.buffering.max.ms": _FILLED,
            "partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms": _SPREAD,
            "buffer.memory buffer.memory.allocation.strategy": "rows are streamed, not gathered in a buffer; "
            "kafka.batch.size and kafka.max.in.flight.requests.per.connection bound the memory",
            "metadata.max.idle.ms": "kafka.metadata.max.age.ms sets how long metadata is kept",
        }
    ),
    **_refuse(
        {
            "transactional.id": "one id per task is made from the option pipeline",
            "partitioner.class": "a partition column chooses the partition of a row; "
            "without one, keys go where the Java client's default puts them",
            "compression.level": "the Java client's names are used: kafka.compression.gzip.level, kafka.compression.lz4.level "
            "or kafka.compression.zstd.level",
            "compression.codec": "the Java client's name is used: kafka.compression.type",
            "message.max.bytes": "the Java client's name is used: kafka.max.request.size",
            "message.timeout.ms": "the Java client's name is used: kafka.delivery.timeout.ms",
        }
    ),
}

CONSUMER: dict[str, Row] = {
    "isolation.level": Use(
        "isolation_level",
        one_of("read_committed", "read_uncommitted"),
        "read_committed",
        "read_committed hides open and aborted transactions (Spark's own Kafka source reads uncommitted by default)",
    ),
    "group.id": Use(
        "group_id",
        TEXT,
        "none",
        "the group whose committed offsets startingOffsets=group begins at; it is not joined",
    ),
    "auto.offset.reset": Use(
        "offset_reset",
        one_of("none", "earliest", "latest"),
        None,
        "only with startingOffsets=group, for partitions without a committed offset: none stops the query, earliest and "
        "latest begin there",
    ),
    **_ignore(
        {
            "max.poll.records": "maxOffsetsPerTrigger bounds a micro-batch",
            "fetch.max.bytes fetch.max.wait.ms fetch.min.bytes max.partition.fetch.bytes": _FETCH,
            "group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms": _GROUP,
            "max.poll.interval.ms partition.assignment.strategy session.timeout.ms": _GROUP,
            "internal.leave.group.on.close internal.throw.on.fetch.stable.offset.unsupported": _GROUP,
        }
    ),
    "client.rack": Use(
        "rack",
        TEXT,
        "none",
        "where the executors run: brokers with a replica.selector.class send them to followers there (KIP-392); writes go to "
        "the leader in any case",
    ),
    "check.crcs": Ignore("every batch's CRC is checked", same=("true",)),
    "enable.auto.commit": Only(("false",), _OFFSETS),
    "exclude.internal.topics": Only(("true",), "a pattern never matches Kafka's own topics; subscribe can name them"),
    "key.deserializer": Only(_BYTES_IN, "keys are bytes; cast the column in the query"),
    "value.deserializer": Only(_BYTES_IN, "values are bytes; cast the column in the query"),
    "allow.auto.create.topics": Only(("false",), "reading never creates a topic; create it before the query"),
    **_refuse(
        {
            "auto.commit.interval.ms": _OFFSETS,
            "share.acknowledgement.mode share.acquire.mode": "share groups cannot be replayed; leave it out",
        }
    ),
}

ROWS: dict[Side, dict[str, Row]] = {
    "sink": {**BOTH, **PRODUCER},
    "source": {**BOTH, **CONSUMER},
    "ledger": BOTH,
}
ALL_NAMES = frozenset(BOTH) | frozenset(PRODUCER) | frozenset(CONSUMER) | frozenset(SECURITY_NAMES)
