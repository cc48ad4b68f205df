"""Configurations: where a value comes from, which values are taken, and what odd changes are answered."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from embedded_kafka.settings.config import BrokerConfig
from embedded_kafka.settings.settings import show
from tests.differential.play import Play
from tests.differential.script import scenario
from tests.differential.wire import Answer

_TOPIC, _BROKER = 2, 4
_SET, _DELETE, _APPEND, _SUBTRACT = 0, 1, 2, 3
_KEYS = [
    "cleanup.policy", "compression.gzip.level", "compression.lz4.level", "compression.type", "compression.zstd.level",
    "delete.retention.ms", "file.delete.delay.ms", "flush.messages", "flush.ms", "follower.replication.throttled.replicas",
    "index.interval.bytes", "leader.replication.throttled.replicas", "local.retention.bytes", "local.retention.ms",
    "max.compaction.lag.ms", "max.message.bytes", "message.timestamp.after.max.ms", "message.timestamp.before.max.ms",
    "message.timestamp.type", "min.cleanable.dirty.ratio", "min.compaction.lag.ms", "preallocate", "remote.log.copy.disable",
    "remote.log.delete.on.disable", "remote.storage.enable", "retention.bytes", "retention.ms", "segment.bytes",
    "segment.index.bytes", "segment.jitter.ms", "unclean.leader.election.enable",
]  # fmt: skip
"""Of a topic, in every release that is compared; without segment.ms and min.insync.replicas, which the real brokers are
started with.
"""
_BROKER_KEYS = [
    "message.max.bytes", "log.segment.bytes", "log.retention.bytes", "log.index.interval.bytes", "log.message.timestamp.after.max.ms",
    "auto.create.topics.enable", "group.max.size", "fetch.max.bytes", "socket.request.max.bytes", "offset.metadata.max.bytes",
    "transaction.max.timeout.ms", "transactional.id.expiration.ms", "producer.id.expiration.ms", "num.partitions",
]  # fmt: skip

_OURS_ALONE = {
    "allow.everyone.if.no.acl.found", "offsets.retention.ms", "sasl.users.file", "security.protocol", "super.users", "transaction.version",
    "unstable.api.versions.enable",
}  # fmt: skip
"""Of the embedded broker's settings those that no release of Kafka describes: of the authorizer, of the listener, of a
feature, internal ones, and our own.
"""
_NOT_IN_3_9 = {"group.consumer.migration.policy", "transaction.two.phase.commit.enable"}


def _made(play: Play, **configs: str) -> str:
    """A topic with these configurations and no other."""
    name = play.name("topic")
    given = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": given}
    play.ask(None, "CreateTopics", 5, timeout_ms=20_000, validate_only=False, topics=[topic])
    play.wait_for_topic(name, 1)
    return name


def _described(
    play: Play, resource: str, keys: list[str] | None, *, kind: int = _TOPIC, synonyms: bool = True, documented: bool = False,
    version: int = 4,
) -> Answer:  # fmt: skip
    more: dict[str, Any] = {"include_documentation": documented} if version >= 3 else {}
    return play.ask(
        None, "DescribeConfigs", version, include_synonyms=synonyms, **more,
        resources=[{"resource_type": kind, "resource_name": resource, "configuration_keys": keys}],
    )  # fmt: skip


def _value(play: Play, name: str, key: str) -> Any:
    answer = _described(play, name, [key], synonyms=False)
    return answer["results"][0]["configs"][0]["value"]


def _change(
    play: Play, label: str | None, resource: str, *changes: tuple[str, int, str | None], kind: int = _TOPIC,
    check_only: bool = False, version: int = 1,
) -> None:  # fmt: skip
    configs = [{"name": key, "config_operation": how, "value": value} for key, how, value in changes]
    play.ask(
        label, "IncrementalAlterConfigs", version, validate_only=check_only,
        resources=[{"resource_type": kind, "resource_name": resource, "configs": configs}],
    )  # fmt: skip


def _replace(
    play: Play, label: str | None, resource: str, configs: Iterable[tuple[str, str | None]], *, kind: int = _TOPIC,
    check_only: bool = False, version: int = 2,
) -> None:  # fmt: skip
    given = [{"name": key, "value": value} for key, value in configs]
    play.ask(
        label, "AlterConfigs", version, validate_only=check_only,
        resources=[{"resource_type": kind, "resource_name": resource, "configs": given}],
    )  # fmt: skip


def _settled(play: Play, name: str) -> None:
    """A change of the controller is seen by a broker a moment later, and changes are seen in their order."""
    play.settings = getattr(play, "settings", 0) + 1  # type: ignore[attr-defined]
    mark = str(10_000 + play.settings)  # type: ignore[attr-defined]
    _change(play, None, name, ("file.delete.delay.ms", _SET, mark))
    play.wait_until(lambda: _value(play, name, "file.delete.delay.ms") == mark, "the change is seen")


@scenario()
def where_configurations_come_from(play: Play) -> None:
    plain, own = (
        _made(play),
        _made(play, retention_ms="5", cleanup_policy="compact,delete", min_cleanable_dirty_ratio="0.25"),
    )
    for version in (1, 2, 3, 4):
        play.note(f"plain, v{version}", _described(play, plain, _KEYS, version=version))
    play.note("its own", _described(play, own, _KEYS))
    play.note("without synonyms", _described(play, own, ["retention.ms", "segment.bytes"], synonyms=False))
    _change(play, "deleted", own, ("retention.ms", _DELETE, None))
    _change(play, "set to the default", own, ("flush.ms", _SET, str(2**63 - 1)))
    _settled(play, own)
    play.note("afterwards", _described(play, own, ["retention.ms", "flush.ms", "cleanup.policy"]))
    played = _described(play, own, ["retention.ms", "segment.bytes", "cleanup.policy"], documented=True)
    play.note("documented", [bool(one["documentation"]) for one in played["results"][0]["configs"]])
    play.note("of a broker", _described(play, "0", _BROKER_KEYS, kind=_BROKER))
    every = _described(play, "0", sorted(show(BrokerConfig()).keys() - _OURS_ALONE - _NOT_IN_3_9), kind=_BROKER)
    play.note("a broker's types", {one["name"]: one["config_type"] for one in every["results"][0]["configs"]})
    for said, kind, name in (
        ("no topic", _TOPIC, ""), ("a bad name", _TOPIC, "a b"), ("a broker that is none", _BROKER, "x"), ("a group", 32, "g"),
        ("client metrics", 16, "m"), ("type 0", 0, "x"),
    ):  # fmt: skip
        play.note(said, _described(play, name, ["retention.ms"], kind=kind))
    play.ask(
        "one twice", "DescribeConfigs", 4, include_synonyms=False, include_documentation=False,
        resources=[{"resource_type": _TOPIC, "resource_name": plain, "configuration_keys": ["flush.ms"]}] * 2,
    )  # fmt: skip
    play.ask("none", "DescribeConfigs", 4, include_synonyms=False, include_documentation=False, resources=[])


_VALUES: dict[str, tuple[str, ...]] = {
    "retention.ms": ("-1", "-2", "0", "1.5", "", " 7 ", "+7", "1_000", "1e3", "0x10", str(2**63 - 1), str(2**63)),
    "retention.bytes": ("-1", "-2", "0"),
    "segment.bytes": ("13", "1048575", "1048576", str(2**31)),
    "segment.ms": ("0", "1"),
    "segment.index.bytes": ("3", "4"),
    "segment.jitter.ms": ("-1", "0"),
    "max.message.bytes": ("-1", "0"),
    "flush.messages": ("0", "1"),
    "flush.ms": ("-1", "0"),
    "index.interval.bytes": ("-1", "0"),
    "delete.retention.ms": ("-1", "0"),
    "file.delete.delay.ms": ("-1", "0"),
    "min.compaction.lag.ms": ("-1", "0"),
    "max.compaction.lag.ms": ("0", "1"),
    "min.cleanable.dirty.ratio": ("-0.1", "0", "1", "1.1", "NaN", "half", "1e-1"),
    "min.insync.replicas": ("0", "1"),
    "message.timestamp.before.max.ms": ("-1", "0"),
    "message.timestamp.after.max.ms": ("-1", "0"),
    "message.timestamp.type": ("createtime", "CreateTime", " LogAppendTime ", ""),
    "compression.type": ("GZIP", "none", "gzip", "", "lz4 "),
    "compression.gzip.level": ("-2", "-1", "0", "1", "9", "10"),
    "compression.lz4.level": ("0", "1", "17", "18"),
    "compression.zstd.level": ("-131073", "-131072", "0", "22", "23"),
    "cleanup.policy": ("delete", "compact", "compact,delete", "delete, compact", "delete,", ",", "none", "Delete"),
    "preallocate": ("TRUE", " false ", "yes", "1", ""),
    "unclean.leader.election.enable": ("True", "no"),
    "leader.replication.throttled.replicas": ("*", "0:0,1:0", "x", "", "0:a"),
    "follower.replication.throttled.replicas": ("*", "none"),
    "remote.storage.enable": ("false", "true", "maybe"),
    "local.retention.ms": ("-2", "-3"),
    "local.retention.bytes": ("-2", "-3"),
    "remote.log.copy.disable": ("false",),
    "remote.log.delete.on.disable": ("false",),
}  # fmt: skip


@scenario()
def values_of_configurations(play: Play) -> None:
    """Only checked, so that each is judged by itself."""
    name = _made(play)
    for key, values in _VALUES.items():
        for value in values:
            _change(play, f"{key} = {value!r}", name, (key, _SET, value), check_only=True)
    pairs = (("min.compaction.lag.ms", "5"), ("max.compaction.lag.ms", "4"))
    _change(play, "lags that contradict", name, *((key, _SET, value) for key, value in pairs), check_only=True)
    for key, value in (
        ("retention.ms", " 7 "),
        ("preallocate", "TRUE"),
        ("min.cleanable.dirty.ratio", "1e-1"),
        ("flush.messages", "+7"),
    ):
        _change(play, f"{key}, set to {value!r}", name, (key, _SET, value))
    _settled(play, name)
    play.note(
        "as they are shown",
        _described(play, name, ["retention.ms", "preallocate", "min.cleanable.dirty.ratio", "flush.messages"]),
    )


@scenario()
def lists_that_grow_and_shrink(play: Play) -> None:
    name = _made(play)
    for said, how, value in (
        ("what is there", _APPEND, "delete"), ("another", _APPEND, "compact"), ("both again", _APPEND, "compact,delete"),
        ("what is bad", _APPEND, "burn"), ("one of two", _SUBTRACT, "delete"), ("what is not there", _SUBTRACT, "delete"),
        ("with a blank", _APPEND, " delete"), ("nothing", _APPEND, ""), ("nothing away", _SUBTRACT, ""),
    ):  # fmt: skip
        verb = "append" if how == _APPEND else "subtract"
        _change(play, f"{verb}: {said}", name, ("cleanup.policy", how, value))
        _settled(play, name)
        play.note(f"{verb}: {said}: then", _described(play, name, ["cleanup.policy"]))
    throttled = "leader.replication.throttled.replicas"
    for said, how, value in (
        ("append to none", _APPEND, "0:0"), ("append two", _APPEND, "1:0,0:0"), ("subtract one", _SUBTRACT, "0:0"),
        ("subtract the last", _SUBTRACT, "1:0"), ("subtract from none", _SUBTRACT, "1:0"),
    ):  # fmt: skip
        _change(play, f"throttled: {said}", name, (throttled, how, value))
        _settled(play, name)
        play.note(f"throttled: {said}: then", _described(play, name, [throttled]))
    for said, key in (
        ("a string", "compression.type"),
        ("a number", "retention.ms"),
        ("an unknown one", "no.such.thing"),
    ):
        for verb, how in (("append", _APPEND), ("subtract", _SUBTRACT)):
            _change(play, f"{verb}: {said}", name, (key, how, "x"))


@scenario(slow=True)
def changes_of_a_broker_that_is_not_there(play: Play) -> None:
    """A real broker looks for it until its own request times out, after 30 s each."""
    _change(play, "another broker", "77", ("retention.ms", _SET, "5"), kind=_BROKER)
    _replace(play, "another broker, all", "77", [("retention.ms", "5")], kind=_BROKER)


@scenario()
def odd_changes_of_configurations(play: Play) -> None:
    name = _made(play, retention_ms="77")
    before = ["retention.ms", "flush.ms", "max.message.bytes"]
    _change(play, "one good, one bad", name, ("flush.ms", _SET, "5"), ("retention.ms", _SET, "soon"))
    _change(play, "only checked", name, ("flush.ms", _SET, "5"), check_only=True)
    _change(play, "only checked, and bad", name, ("flush.ms", _SET, "soon"), check_only=True)
    _change(play, "one key twice", name, ("flush.ms", _SET, "5"), ("flush.ms", _DELETE, None))
    for verb, how in (("set", _SET), ("append", _APPEND), ("subtract", _SUBTRACT)):
        _change(play, f"{verb} null", name, ("cleanup.policy", how, None))
    _change(play, "delete with a value", name, ("max.message.bytes", _DELETE, "5"))
    _change(play, "delete what is not set", name, ("flush.ms", _DELETE, None))
    _change(play, "delete what nobody knows", name, ("no.such.thing", _DELETE, None))
    _change(play, "nothing", name)
    _change(play, "v0", name, ("max.message.bytes", _SET, "2000"), version=0)
    _settled(play, name)
    play.note("then", _described(play, name, before))
    for said, kind, resource in (
        ("no such topic", _TOPIC, play.name("nowhere")), ("a bad name", _TOPIC, "a b"), ("no name", _TOPIC, ""), ("type 0", 0, "x"), ("type 99", 99, "x"),
        ("a broker that is none", _BROKER, "x"),
    ):  # fmt: skip
        _change(play, said, resource, ("retention.ms", _SET, "5"), kind=kind)
        _replace(play, f"{said}, all", resource, [("retention.ms", "5")], kind=kind)
    for api, extra in (("IncrementalAlterConfigs", {"config_operation": _SET}), ("AlterConfigs", {})):
        with play.no_answer_expected():
            play.ask(
                f"{api}: one topic twice", api, 1, validate_only=False,
                resources=[
                    {"resource_type": _TOPIC, "resource_name": name, "configs": [{"name": "flush.ms", "value": value, **extra}]}
                    for value in ("1", "2")
                ],
            )  # fmt: skip
        play.ask(f"{api}: nothing", api, 1, validate_only=False, resources=[])
        good, bad = _made(play), play.name("nowhere")
        play.ask(
            f"{api}: one that is there and one that is not", api, 1, validate_only=False,
            resources=[
                {"resource_type": _TOPIC, "resource_name": each, "configs": [{"name": "flush.ms", "value": "9", **extra}]}
                for each in (good, bad)
            ],
        )  # fmt: skip
        play.wait_until(lambda made=good: _value(play, made, "flush.ms") == "9", "the good one is changed")
    _replace(play, "all, a null", name, [("retention.ms", None)])
    _replace(play, "all, one twice", name, [("flush.ms", "5"), ("flush.ms", "6")])
    _replace(play, "all, unknown", name, [("no.such.thing", "5")])
    _replace(play, "all, bad", name, [("flush.ms", "5"), ("retention.ms", "soon")])
    _replace(play, "all, only checked", name, [("flush.ms", "5")], check_only=True)
    play.note("still", _described(play, name, before))
    _replace(play, "all", name, [("flush.ms", "6")])
    _settled(play, name)
    play.note("replaced", _described(play, name, before))
    _replace(play, "all gone", name, [], version=0)
    _settled(play, name)
    play.note("gone", _described(play, name, before))


@scenario()
def configurations_of_new_topics(play: Play) -> None:
    def create(label: str, configs: list[tuple[str, str | None]], check_only: bool = False) -> None:
        given = [{"name": key, "value": value} for key, value in configs]
        topic = {
            "name": play.name("topic"),
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": given,
        }
        answer = play.ask(None, "CreateTopics", 5, timeout_ms=20_000, validate_only=check_only, topics=[topic])
        for one in answer["topics"]:
            kept = [each for each in one["configs"] or [] if each["name"] in _KEYS]
            one["configs"] = sorted(kept, key=lambda each: str(each["name"]))
        play.note(label, answer)

    create("none", [])
    create("some", [("retention.ms", "5"), ("cleanup.policy", "compact,delete"), ("preallocate", "TRUE")])
    create("only checked", [("retention.ms", "5")], check_only=True)
    create("only checked, and bad", [("retention.ms", "soon")], check_only=True)
    create("one twice", [("retention.ms", "5"), ("retention.ms", "6")])
    create("a null", [("retention.ms", None)])
    create("unknown and null", [("no.such.thing", None)])
    create("lags that contradict", [("min.compaction.lag.ms", "5"), ("max.compaction.lag.ms", "4")])
