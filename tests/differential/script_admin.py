"""Topics, partitions and configurations: the error codes an operator's tool meets; versions that nobody has."""

from __future__ import annotations

from typing import Any

from tests.differential.play import Play
from tests.differential.script import scenario
from tests.differential.wire import Answer

_TOPIC, _BROKER = 2, 4
_SET, _DELETE, _APPEND, _SUBTRACT = 0, 1, 2, 3


def _topic(name: str, partitions: int = 1, copies: int = 1, **configs: str | None) -> dict[str, Any]:
    given = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    return {
        "name": name, "num_partitions": partitions, "replication_factor": copies, "assignments": [], "configs": given,
    }  # fmt: skip


def _create(play: Play, label: str, *topics: dict[str, Any], version: int = 5, check_only: bool = False) -> None:
    answer = play.ask(None, "CreateTopics", version, topics=list(topics), timeout_ms=20_000, validate_only=check_only)
    play.note(label, _codes_alone(answer))


def _codes_alone(answer: Answer) -> Answer:
    """Lists of a topic's configurations are not the same set in two versions of a real broker either."""
    for one in answer.get("topics", []):
        one.pop("configs", None)
    return answer


@scenario()
def topics_are_made(play: Play) -> None:
    name = play.name("topic")
    _create(play, "new", _topic(name, 2))
    play.wait_for_topic(name, 2)
    _create(play, "again", _topic(name))
    _create(play, "again, only checked", _topic(name), check_only=True)
    for said, bad in (
        ("no name", ""), ("a dot", "."), ("two dots", ".."), ("a blank", "a b"), ("a slash", "a/b"), ("too long", "n" * 250),
    ):  # fmt: skip
        _create(play, f"name: {said}", _topic(bad))
    for partitions in (0, -1, -2):
        _create(play, f"{partitions} partitions", _topic(play.name("topic"), partitions))
    for copies in (0, -1, -2):
        _create(play, f"{copies} copies", _topic(play.name("topic"), 1, copies))
    _create(play, "defaults, v3", _topic(play.name("topic"), -1, -1), version=3)
    _create(play, "unknown config", _topic(play.name("topic"), no_such_thing="1"))
    _create(play, "a bad value", _topic(play.name("topic"), retention_ms="soon"))
    _create(play, "a value out of range", _topic(play.name("topic"), max_message_bytes="-1"))
    _create(play, "a null value", _topic(play.name("topic"), retention_ms=None))
    _create(play, "a bad policy", _topic(play.name("topic"), cleanup_policy="burn"))
    twice = play.name("topic")
    _create(play, "twice in a request", _topic(twice), _topic(twice))
    good, checked = play.name("topic"), play.name("topic")
    _create(play, "good and bad", _topic(good), _topic("a b"))
    _create(play, "only checked", _topic(checked), check_only=True)
    play.note("it was only checked", play.metadata(checked)["topics"][0]["error_code"] != 0)
    for version in (2, 3, 4, 5, 6, 7):
        _create(play, f"v{version}", _topic(play.name("topic")), version=version)
    placed = _topic(play.name("topic"), -1, -1)
    placed["assignments"] = [
        {"partition_index": 0, "broker_ids": [0]},
        {"partition_index": 1, "broker_ids": [0]},
    ]
    _create(play, "placed", placed)
    both = _topic(play.name("topic"), 1, 1)
    both["assignments"] = [{"partition_index": 0, "broker_ids": [0]}]
    _create(play, "placed and counted", both)


@scenario()
def names_that_collide(play: Play) -> None:
    """Metrics of a real broker take a dot for an underscore."""
    base = play.name("topic")
    _create(play, "the first", _topic(f"{base}.a_b"))
    play.wait_for_topic(f"{base}.a_b", 1)
    for other in ("_a_b", ".a.b", "_a.b"):
        _create(play, f"like {other}", _topic(base + other))
        _create(play, f"like {other}, only checked", _topic(base + other), check_only=True)
    _create(play, "like it, and otherwise wrong", _topic(f"{base}_a_b", 0))
    _create(play, "itself", _topic(f"{base}.a_b"))
    for other in ("-a_b", "a_b", ".a_", ".A_b"):
        _create(play, f"unlike {other}", _topic(base + other))
    pair = play.name("topic")
    both = play.ask(
        None, "CreateTopics", 5, topics=[_topic(f"{pair}.x"), _topic(f"{pair}_x")], timeout_ms=20_000, validate_only=False
    )  # fmt: skip
    # Which of them is the first is a matter of their hashes where there is ZooKeeper.
    play.note("both at once", sorted(one["error_code"] for one in both["topics"]))
    checked = play.name("topic")
    _create(play, "both at once, only checked", _topic(f"{checked}.x"), _topic(f"{checked}_x"), check_only=True)
    play.ask(None, "DeleteTopics", 4, topic_names=[f"{base}.a_b"], timeout_ms=20_000)
    play.wait_until(lambda: play.metadata(f"{base}.a_b")["topics"][0]["error_code"] == 3, "it is gone")

    def made() -> bool:
        """A broker with ZooKeeper forgets a name a moment after it has forgotten the topic."""
        answer = play.ask(
            None, "CreateTopics", 5, topics=[_topic(f"{base}_a.b")], timeout_ms=20_000, validate_only=False
        )
        return bool(answer["topics"][0]["error_code"] == 0)

    play.wait_until(made, "the name is free")
    play.wait_for_topic(f"{base}_a.b", 1)
    _create(play, "the first, again", _topic(f"{base}.a_b"))


@scenario()
def names_that_collide_by_asking(play: Play) -> None:
    base = play.name("topic")
    _create(play, "the first", _topic(f"{base}.a"))
    play.wait_for_topic(f"{base}.a", 1)

    def asked(label: str | None, name: str) -> int:
        answer = play.ask(None, "Metadata", 7, again=(), topics=[{"name": name}], allow_auto_topic_creation=True)
        if label is not None:
            play.note(label, answer["topics"])
        return int(answer["topics"][0]["error_code"])

    asked("at once", f"{base}_a")
    # What is asked for later is made later, so when this is there the other would be.
    play.wait_until(lambda: asked(None, f"{base}-b") == 0, "another topic makes itself")
    asked("later", f"{base}_a")
    play.note("without making it", play.metadata(f"{base}_a")["topics"])


@scenario()
def topics_are_deleted(play: Play) -> None:
    for version in (1, 3, 4, 5):
        name = play.topic()
        play.ask(f"v{version}", "DeleteTopics", version, topic_names=[name], timeout_ms=20_000)
        play.wait_until(lambda gone=name: play.metadata(gone)["topics"][0]["error_code"] == 3, "it is gone")
        play.ask(f"v{version}, again", "DeleteTopics", version, topic_names=[name], timeout_ms=20_000)
        play.fetch(f"v{version}, fetched", name)
    play.ask("none", "DeleteTopics", 4, topic_names=[], timeout_ms=20_000)
    name = play.topic()
    play.ask("v6", "DeleteTopics", 6, topics=[{"name": name}], timeout_ms=20_000)
    play.ask("v6, unknown", "DeleteTopics", 6, topics=[{"name": play.name("nowhere")}], timeout_ms=20_000)


@scenario()
def partitions_are_added(play: Play) -> None:
    name = play.topic(partitions=2)

    def ask(label: str, count: int, topic: str = name, check_only: bool = False) -> None:
        play.ask(
            label, "CreatePartitions", 1, timeout_ms=20_000, validate_only=check_only,
            topics=[{"name": topic, "count": count, "assignments": None}],
        )  # fmt: skip

    for count in (-1, 0, 1, 2):
        ask(f"to {count}", count)
    ask("only checked", 3, check_only=True)
    ask("to 3", 3)
    play.wait_for_topic(name, 3)
    ask("unknown topic", 3, play.name("nowhere"))


@scenario()
def metadata_of_topics(play: Play) -> None:
    name, nowhere = play.topic(partitions=2), play.name("nowhere")
    for version in (4, 5, 7, 8, 9, 10, 12):
        for said, topic in (("known", name), ("unknown", nowhere), ("bad", "a b")):
            answer = play.ask(
                None, "Metadata", version, again=(), topics=[{"name": topic}], allow_auto_topic_creation=False
            )
            play.note(f"{said}, v{version}", answer["topics"])
        none = play.ask(None, "Metadata", version, topics=[], allow_auto_topic_creation=False)
        play.note(f"none, v{version}", {"brokers": none["brokers"], "topics": none["topics"]})
    made = play.name("made")

    def there() -> bool:
        answer = play.ask(None, "Metadata", 7, again=(), topics=[{"name": made}], allow_auto_topic_creation=True)
        return bool(answer["topics"][0]["error_code"] == 0)

    play.wait_until(there, "the topic makes itself")
    play.wait_for_topic(made, 1)
    play.note("made by asking", play.metadata(made)["topics"])


@scenario()
def configurations(play: Play) -> None:
    name = play.topic()

    def described(label: str, keys: list[str] | None, kind: int = _TOPIC, resource: str = name) -> None:
        answer = play.ask(
            None, "DescribeConfigs", 2, include_synonyms=False,
            resources=[{"resource_type": kind, "resource_name": resource, "configuration_keys": keys}],
        )  # fmt: skip
        play.note(label, answer)

    def change(label: str, key: str, value: str | None, operation: int = _SET, resource: str = name) -> None:
        play.ask(
            label, "IncrementalAlterConfigs", 1, validate_only=False,
            resources=[{"resource_type": _TOPIC, "resource_name": resource, "configs": [
                {"name": key, "config_operation": operation, "value": value}]}],
        )  # fmt: skip

    keys = ["retention.ms", "max.message.bytes", "cleanup.policy", "message.timestamp.type"]
    described("some", keys)
    answer = play.ask(
        None, "DescribeConfigs", 2, include_synonyms=False,
        resources=[{"resource_type": _TOPIC, "resource_name": name, "configuration_keys": []}],
    )  # fmt: skip
    # Which there are is a matter of the release.
    play.note("no key given", len(answer["results"][0]["configs"]) > len(keys))
    described("unknown key", ["no.such.thing"])
    described("unknown topic", keys, resource=play.name("nowhere"))
    described("unknown broker", ["node.id"], _BROKER, "77")
    described("unknown type", keys, 99)
    change("set", "retention.ms", "12345678")
    change("set, unknown key", "no.such.thing", "1")
    change("set, a bad value", "retention.ms", "soon")
    change("set, no value", "retention.ms", None)
    change("set, unknown topic", "retention.ms", "1", resource=play.name("nowhere"))
    change("append to a number", "retention.ms", "1", _APPEND)
    change("append to a list", "cleanup.policy", "compact", _APPEND)
    play.wait_until(lambda: _has(play, name, "compact,delete", "delete,compact"), "the change is seen")
    described("changed", keys)
    change("subtract from a list", "cleanup.policy", "compact", _SUBTRACT)
    change("unset", "retention.ms", None, _DELETE)
    change("unset, unknown key", "no.such.thing", None, _DELETE)
    change("an unknown operation", "retention.ms", "1", 9)
    play.ask(
        "one key twice", "IncrementalAlterConfigs", 1, validate_only=False,
        resources=[{"resource_type": _TOPIC, "resource_name": name, "configs": [
            {"name": "retention.ms", "config_operation": _SET, "value": value} for value in ("1", "2")]}],
    )  # fmt: skip


def _has(play: Play, name: str, *values: str) -> bool:
    answer = play.ask(
        None, "DescribeConfigs", 2, include_synonyms=False,
        resources=[{"resource_type": _TOPIC, "resource_name": name, "configuration_keys": ["cleanup.policy"]}],
    )  # fmt: skip
    return answer["results"][0]["configs"][0]["value"] in values


@scenario()
def versions_that_nobody_has(play: Play) -> None:
    answer = play.ask(None, "ApiVersions", 99, client_software_name="s", client_software_version="1")
    play.note("ApiVersions", {"error_code": answer["error_code"], "own": _own_versions(answer)})
    answer = play.ask(None, "ApiVersions", 3, client_software_name="s", client_software_version="1")
    play.note("ApiVersions v3", {"error_code": answer["error_code"], "own": _own_versions(answer)})
    answer = play.ask(None, "ApiVersions", 3, client_software_name="", client_software_version="!")
    play.note("ApiVersions v3, a bad name", answer["error_code"])
    play.ask("Metadata", "Metadata", 99, topics=[])
    play.ask("InitProducerId", "InitProducerId", 99, transactional_id=None, transaction_timeout_ms=1)
    play.ask("EndTxn", "EndTxn", 99, transactional_id="x", producer_id=1, producer_epoch=1, committed=True)


@scenario()
def a_broker_that_is_named(play: Play) -> None:
    own = play.ask(None, "Metadata", 9, topics=[])
    cluster, node = own["cluster_id"], own["brokers"][0]["node_id"]
    for label, cluster_id, node_id in (
        ("nobody", None, -1), ("the right one", cluster, node), ("another node", cluster, node + 1),
        ("another cluster", "another", node), ("another of both", "another", node + 1), ("a cluster without a name", "", node),
        ("a cluster, no node", cluster, -1), ("a node, no cluster", None, node), ("a node below -1", cluster, -2),
        ("the right one again", cluster, node),
    ):  # fmt: skip
        answer = play.ask(
            None, "ApiVersions", 5, cluster_id=cluster_id, node_id=node_id,
            client_software_name="s", client_software_version="1",
        )  # fmt: skip
        play.note(label, answer["error_code"])


def _own_versions(answer: Answer) -> list[int]:
    (own,) = (one for one in answer["api_keys"] if one["api_key"] == 18)
    return [own["min_version"], own["max_version"]]
