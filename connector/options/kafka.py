"""`kafka.*` options: which of the Java client's names are used here, which are refused, what to use instead.

Owns: one row for every config of the Java producer and consumer (Kafka 3.9 to 4.4); the parsing of values.
Does not know: Spark's own options (`sink`, `source`), how TLS and SASL names combine (`security`), sockets.
Invariants:
- No name is ignored: it is used, or accepted because it asks for the fixed behaviour, or refused with a
  reason.
- No message contains the value of a name that can hold a secret.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError

from connector.model import ClientSettings
from connector.options.security import SECURITY_NAMES, translate_security

Side = Literal["sink", "source"]

MAX_INT = 2**31 - 1
"""Java's int, the type of these configs and of the wire fields they end in."""

LARGEST_SHOWN_VALUE = 80
"""A refused value is quoted up to this many characters: enough to recognise it, short enough for one line."""


# ---- how one value is read


@dataclass(frozen=True)
class Kind:
    """One kind of value; `expected` completes the sentence "must be ..."."""

    expected: str
    adapter: TypeAdapter[Any]

    def read(self, name: str, text: str, problems: list[str]) -> Any:
        """The value, or None after adding one line to `problems`. Never shows pydantic's own wording."""
        try:
            return self.adapter.validate_python(text)
        except ValidationError:
            shown = text if len(text) <= LARGEST_SHOWN_VALUE else text[:LARGEST_SHOWN_VALUE] + "..."
            problems.append(f"{name} is {shown!r}: must be {self.expected}")
            return None


def _servers(text: str) -> tuple[str, ...]:
    """Split `host:port,host:port`; a leading `PROTOCOL://` is dropped, as the Java client does."""
    servers = tuple(re.sub(r"^\w+://", "", part.strip()) for part in text.split(",") if part.strip())
    for server in servers:
        match = re.fullmatch(r"(?:\[[0-9A-Fa-f:.%\w]+\]|[\w.%-]+):(\d{1,5})", server)
        if match is None or not 0 < int(match[1]) < 65536:
            raise ValueError(server)
    if not servers:
        raise ValueError(text)
    return servers


def whole_number(expected: str, least: int, most: int = MAX_INT) -> Kind:
    """A kind for numbers within [least, most]."""
    bounds = Annotated[int, Field(ge=least, le=most)]
    return Kind(f"{expected}, {least} to {most}", TypeAdapter(bounds))


def one_of(*values: str) -> Kind:
    """A kind for a fixed set of words, in any case; the word is returned as listed."""
    in_lower = BeforeValidator(lambda text: {value.lower(): value for value in values}.get(text.lower()))
    return Kind(f"one of {', '.join(values)}", TypeAdapter(Annotated[str, in_lower]))


MILLISECONDS = whole_number("a whole number of milliseconds", 1)
BYTES = whole_number("a whole number of bytes", 1)
# Spark reads only these two words as a flag; pydantic alone would also take "yes" and "1".
FLAG = Kind(
    "true or false",
    TypeAdapter(
        Annotated[bool, BeforeValidator(lambda text: {"true": True, "false": False}.get(text.lower()))]
    ),
)
LONG_TEXT = Kind("a text that is not empty", TypeAdapter(Annotated[str, Field(min_length=1)]))
TEXT = Kind("a text of 1 to 255 characters", TypeAdapter(Annotated[str, Field(min_length=1, max_length=255)]))
SERVERS = Kind(
    "host:port, or several separated by commas", TypeAdapter(Annotated[Any, AfterValidator(_servers)])
)


# ---- the treatment of one name


@dataclass(frozen=True)
class Use:
    """The name is used: its value becomes `field` of the options or of the client's settings. `default`: in
    words, where the field's own default does not express it; None shows the field's."""

    field: str
    kind: Kind
    default: str | None
    meaning: str


@dataclass(frozen=True)
class Only:
    """The name has no effect, so it is accepted only with a value that asks for the fixed behaviour."""

    values: tuple[str, ...]
    otherwise: str


@dataclass(frozen=True)
class Refuse:
    """The name has no meaning here; `instead` names the alternative."""

    instead: str


Row = Use | Only | Refuse


def _refuse(rows: Mapping[str, str]) -> dict[str, Row]:
    """Rows for `{names separated by spaces: the alternative}`."""
    return {name: Refuse(instead) for names, instead in rows.items() for name in names.split()}


_BY_ITSELF = "the client does this by itself and it cannot be set; leave it out"
_METRICS = "this client reports no Java metrics; leave it out"
_OAUTH = "OAUTHBEARER is not supported yet; use kafka.sasl.mechanism SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN"
_JAVA_CLASS = "a Java class cannot be loaded here; leave it out"
_GROUP = "the source joins no consumer group: Spark assigns the partitions; leave it out"
_FETCH = "the source sizes its own fetches; maxOffsetsPerTrigger bounds a micro-batch"
_LEVEL = "a codec's level cannot be set yet, its default is used; kafka.compression.type chooses the codec"
_CLIENT = ClientSettings(bootstrap_servers=())
CLIENT_FIELDS = tuple(field.name for field in fields(ClientSettings))

OAUTHBEARER_NAMES = """
    allow.unverified.audience allow.unverified.issuer assertion.algorithm assertion.claim.aud
    assertion.claim.exp.seconds assertion.claim.iss assertion.claim.jti.include
    assertion.claim.nbf.seconds assertion.claim.sub assertion.file assertion.private.key.file
    assertion.private.key.passphrase assertion.template.file client.credentials.client.id
    client.credentials.client.secret clock.skew.seconds expected.audience expected.issuer
    header.urlencode jwks.endpoint.refresh.ms jwks.endpoint.retry.backoff.max.ms
    jwks.endpoint.retry.backoff.ms jwks.endpoint.url jwt.retriever.class jwt.validator.class  scope
    scope.claim.name sub.claim.name token.endpoint.url
"""

BOTH: dict[str, Row] = {
    "bootstrap.servers": Use(
        "bootstrap_servers", SERVERS, "required", "brokers to connect to first, host:port separated by commas"
    ),
    "client.id": Use(
        "client_id", TEXT, _CLIENT.client_id, "name of this client in the brokers' logs and quotas"
    ),
    "request.timeout.ms": Use(
        "request_timeout_ms", MILLISECONDS, str(_CLIENT.request_timeout_ms), "longest wait for one answer"
    ),
    "metadata.max.age.ms": Use(
        "metadata_max_age_ms",
        MILLISECONDS,
        None,
        "refresh interval of topics, partitions and leaders",
    ),
    "client.dns.lookup": Only(("use_all_dns_ips",), "all addresses of a host are tried; leave it out"),
    "enable.metrics.push": Only(("false",), _METRICS),
    **_refuse(
        {
            "retry.backoff.ms retry.backoff.max.ms reconnect.backoff.ms reconnect.backoff.max.ms": _BY_ITSELF,
            "connections.max.idle.ms send.buffer.bytes receive.buffer.bytes": _BY_ITSELF,
            "socket.connection.setup.timeout.ms socket.connection.setup.timeout.max.ms": _BY_ITSELF,
            "metadata.recovery.strategy metadata.recovery.rebootstrap.trigger.ms": _BY_ITSELF,
            "metadata.cluster.check.enable bootstrap.resolve.timeout.ms": _BY_ITSELF,
            "metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms": _METRICS,
            "auto.include.jmx.reporter": _METRICS,
            "client.rack": "reads and writes go to the leader; not supported yet, leave it out",
            "config.providers": "values are taken as they are; read the secret in the job and pass it",
            "interceptor.classes": "interceptors could change records unseen; transform columns in the query",
            "security.providers": _JAVA_CLASS,
            "sasl.client.callback.handler.class sasl.login.callback.handler.class": _JAVA_CLASS,
            "sasl.login.class": _JAVA_CLASS,
            "ssl.engine.factory.class ssl.keymanager.algorithm ssl.trustmanager.algorithm": _JAVA_CLASS,
            "ssl.provider ssl.secure.random.implementation": _JAVA_CLASS,
            "enable.ssl.certificate.verification": "certificates are always verified; kafka.ssl.ca.location "
            "names the authority to trust",
            "sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.ticket.renew.jitter "
            "sasl.kerberos.ticket.renew.window.factor": "tickets are taken from the ticket cache; renew them "
            "with kinit or k5start on every machine",
            "sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds "
            "sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor "
            "sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms": _OAUTH,
            "sasl.login.retry.backoff.ms": _OAUTH,
        }
    ),
    **{f"sasl.oauthbearer.{name}": Refuse(_OAUTH) for name in OAUTHBEARER_NAMES.split()},
}

PRODUCER: dict[str, Row] = {
    "acks": Only(("all", "-1"), "exactly-once needs every in-sync replica: all"),
    "enable.idempotence": Only(("true",), "exactly-once needs the idempotent producer: true"),
    "retries": Only((str(MAX_INT),), "kafka.delivery.timeout.ms bounds how long a batch is sent again"),
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
    **_refuse(
        {
            "linger.ms": "batches are filled from the task's rows; kafka.batch.size bounds them",
            "transactional.id": "one id per task is made from the option pipeline",
            "key.serializer value.serializer": "keys and values are bytes; cast the columns in the query",
            "partitioner.class partitioner.ignore.keys": "a partition column chooses the partition of a row; "
            "without one, keys go where the Java client's default puts them",
            "partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms "
            "partitioner.rack.aware": "rows without a key are spread evenly; a partition column chooses "
            "otherwise",
            "buffer.memory buffer.memory.allocation.strategy": "rows are streamed, not gathered in a buffer; "
            "kafka.batch.size and kafka.max.in.flight.requests.per.connection bound the memory",
            "metadata.max.idle.ms": "kafka.metadata.max.age.ms sets how long metadata is kept",
            "compression.gzip.level compression.lz4.level compression.zstd.level compression.level": _LEVEL,
            "compression.codec": "the Java client's name is used: kafka.compression.type",
            "queue.buffering.max.ms": "batches are filled from the task's rows; kafka.batch.size bounds them",
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
        "read_committed hides open and aborted transactions (Spark's own Kafka source reads uncommitted "
        "by default)",
    ),
    "group.id": Use(
        "group_id", TEXT, "none", "accepted for migrating jobs; the source joins no consumer group"
    ),
    "check.crcs": Only(("true",), "every batch's CRC is checked"),
    "allow.auto.create.topics": Only(("false",), "reading never creates a topic; create it before the query"),
    **_refuse(
        {
            "auto.offset.reset": "startingOffsets sets where a new query begins",
            "enable.auto.commit auto.commit.interval.ms": "Spark's checkpoint keeps the offsets; the "
            "sink's option offsets.group commits them to a consumer group with the output",
            "key.deserializer value.deserializer": "keys and values are bytes; cast the columns in the query",
            "max.poll.records": "maxOffsetsPerTrigger bounds a micro-batch",
            "fetch.max.bytes fetch.max.wait.ms fetch.min.bytes max.partition.fetch.bytes": _FETCH,
            "default.api.timeout.ms": "kafka.request.timeout.ms bounds one answer",
            "group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms": _GROUP,
            "max.poll.interval.ms partition.assignment.strategy session.timeout.ms": _GROUP,
            "internal.leave.group.on.close internal.throw.on.fetch.stable.offset.unsupported": _GROUP,
            "share.acknowledgement.mode share.acquire.mode": "share groups cannot be replayed; leave it out",
            "exclude.internal.topics": "subscribe names the topics",
        }
    ),
}

_WRONG_SIDE = {
    "isolation.level": "the sink reads nothing; set it on the source",
    "group.id": "the sink's option offsets.group names the consumer group that gets the source offsets",
}

ROWS: dict[Side, dict[str, Row]] = {"sink": {**BOTH, **PRODUCER}, "source": {**BOTH, **CONSUMER}}
ALL_NAMES = frozenset(BOTH) | frozenset(PRODUCER) | frozenset(CONSUMER) | frozenset(SECURITY_NAMES)


def translate(
    given: Mapping[str, str], side: Side, problems: list[str]
) -> tuple[dict[str, Any], ClientSettings]:
    """Translate `given`, Java names without their `kafka.` prefix, for one side of the query.

    Returns the options' fields that the user set, and the client's settings. Every unusable name adds a line
    to `problems`; if any was added, the returned values must not be used.
    """
    values: dict[str, Any] = {}
    for name, text in given.items():
        if name in SECURITY_NAMES:
            continue
        row = ROWS[side].get(name)
        if isinstance(row, Use):
            values[row.field] = row.kind.read(f"kafka.{name}", text, problems)
        elif isinstance(row, Only):
            if text.lower() not in row.values:
                problems.append(f"kafka.{name} cannot be {text[:LARGEST_SHOWN_VALUE]!r}: {row.otherwise}")
        elif isinstance(row, Refuse):
            problems.append(f"kafka.{name} has no meaning here: {row.instead}")
        else:
            problems.append(_stranger(name, side))
    if "bootstrap.servers" not in given:
        problems.append(
            "kafka.bootstrap.servers is missing: it names the brokers, host:port separated by commas"
        )
    security = {name: text for name, text in given.items() if name in SECURITY_NAMES}
    _check_timeouts(values, problems)
    client = {name: values.pop(name) for name in CLIENT_FIELDS if name in values}
    client.setdefault("bootstrap_servers", ())
    return values, ClientSettings(**client, security=translate_security(security, problems))


def _stranger(name: str, side: Side) -> str:
    """The line for a name without a row on this side."""
    if side == "sink" and name in CONSUMER:
        reason = _WRONG_SIDE.get(name, "it is a setting of consumers")
        return f"kafka.{name} has no meaning on the sink: {reason}"
    if side == "source" and name in PRODUCER:
        return f"kafka.{name} has no meaning on the source: it is a setting of producers, give it to the sink"
    near = nearest(name, ALL_NAMES)
    hint = f"did you mean kafka.{near}?" if near else "Kafka's Java client has no setting of a similar name"
    return f"kafka.{name} is not a known option: {hint}"


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The most similar of `names` in any case, or None where nothing is similar."""
    known = {candidate.lower(): candidate for candidate in sorted(names)}
    found = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    return known[found[0]] if found else None


def _check_timeouts(values: dict[str, Any], problems: list[str]) -> None:
    """A delivery contains at least one request (KIP-91): a default gives way to the user's value."""
    request, delivery = values.get("request_timeout_ms"), values.get("delivery_timeout_ms")
    if request is not None and delivery is not None and delivery < request:
        problems.append(
            f"kafka.delivery.timeout.ms ({delivery}) is less than kafka.request.timeout.ms ({request}): "
            "a delivery waits for at least one request"
        )
    elif request is not None and delivery is None:
        values["delivery_timeout_ms"] = max(request, _CLIENT.delivery_timeout_ms)
    elif delivery is not None and request is None:
        values["request_timeout_ms"] = min(delivery, _CLIENT.request_timeout_ms)
