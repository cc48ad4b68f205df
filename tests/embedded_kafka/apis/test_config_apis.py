"""Configurations through their APIs: where a value comes from, and what a change that is refused leaves behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from embedded_kafka.node import Node
from embedded_kafka.refusals import Refused
from embedded_kafka.settings.config import BrokerConfig, LogConfig
from embedded_kafka.settings.topic_configs import SETTINGS, check
from embedded_kafka.wire.server import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    Message,
)
from kafka_core.protocol.error_codes import Code
from tests.embedded_kafka.node_tools import ask, with_node

TOPIC, BROKER = 2, 4
OF_TOPIC, STATIC, DEFAULT = 1, 4, 5
SET, DELETE, APPEND, SUBTRACT = range(4)
Change = tuple[str, int, str | None]


def describe(name: str, *keys: str, kind: int = TOPIC, synonyms: bool = True, documented: bool = False) -> Message:
    resource = DescribeConfigsRequest.DescribeConfigsResource
    return DescribeConfigsRequest(
        version=4, include_synonyms=synonyms, include_documentation=documented,
        resources=[resource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)],
    )  # fmt: skip


def change(*changes: Change, names: tuple[str, ...] = ("t",), check_only: bool = False) -> Message:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [resource.AlterableConfig(name=key, config_operation=how, value=value) for key, how, value in changes]
    return IncrementalAlterConfigsRequest(
        version=1, validate_only=check_only,
        resources=[resource(resource_type=TOPIC, resource_name=name, configs=configs) for name in names],
    )  # fmt: skip


def whole(*configs: tuple[str, str | None], names: tuple[str, ...] = ("t",), check_only: bool = False) -> Message:
    resource = AlterConfigsRequest.AlterConfigsResource
    given = [resource.AlterableConfig(name=key, value=value) for key, value in configs]
    return AlterConfigsRequest(
        version=2, validate_only=check_only,
        resources=[resource(resource_type=TOPIC, resource_name=name, configs=given) for name in names],
    )  # fmt: skip


def only(answer: Any) -> Any:
    (result,) = answer.results
    (config,) = result.configs
    return config


def story(config: Any) -> tuple[str, int, list[tuple[str, str, int]]]:
    return (
        config.value,
        config.config_source,
        [(each.name, each.value, each.source) for each in config.synonyms],
    )


def test_every_configuration_has_a_sentence() -> None:
    assert all(setting.note.endswith(".") for setting in SETTINGS.values())


def test_a_value_says_where_it_comes_from_and_what_would_hold_without_it(tmp_path: Path) -> None:
    """KIP-226: the topic's own, then the broker's own, then the default."""
    config = replace(BrokerConfig(), log=LogConfig(max_message_bytes=5_000, retention_ms=77))

    async def scenario(node: Node) -> None:
        node.parts.topics.create("plain", 1)
        node.parts.topics.create("t", 1, {"max.message.bytes": "2000", "retention.ms": "5"})
        broker, default = ("message.max.bytes", "5000", STATIC), ("message.max.bytes", "1048588", DEFAULT)
        shown = only(await ask(node, describe("t", "max.message.bytes")))
        assert story(shown) == ("2000", OF_TOPIC, [("max.message.bytes", "2000", OF_TOPIC), broker, default])
        shown = only(await ask(node, describe("plain", "max.message.bytes")))
        assert story(shown) == ("5000", STATIC, [broker, default])
        shown = only(await ask(node, describe("plain", "retention.ms")))
        assert story(shown) == ("77", STATIC, [("log.retention.ms", "77", STATIC)])
        shown = only(await ask(node, describe("plain", "segment.bytes")))
        assert story(shown) == ("1073741824", DEFAULT, [("log.segment.bytes", "1073741824", DEFAULT)])
        shown = only(await ask(node, describe("plain", "flush.ms")))
        assert story(shown) == (str(2**63 - 1), DEFAULT, [])
        shown = only(await ask(node, describe("plain", "flush.ms", synonyms=False)))
        assert shown.synonyms == []
        assert (shown.read_only, shown.is_sensitive, shown.documentation) == (False, False, None)
        (result,) = (await ask(node, describe("plain", documented=True))).results
        assert len(result.configs) == len(SETTINGS) and all(each.documentation for each in result.configs)

    with_node(tmp_path, scenario, config)


def test_a_brokers_setting_says_whether_it_was_given(tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        given = only(await ask(node, describe("0", "num.partitions", kind=BROKER)))
        assert story(given) == (
            "4",
            STATIC,
            [("num.partitions", "4", STATIC), ("num.partitions", "1", DEFAULT)],
        )
        left = only(await ask(node, describe("0", "log.retention.ms", kind=BROKER)))
        assert story(left) == ("604800000", DEFAULT, [("log.retention.ms", "604800000", DEFAULT)])
        assert (given.config_type, left.config_type, left.read_only) == (3, 5, True)
        share = only(await ask(node, describe("0", "log.cleaner.min.cleanable.ratio", kind=BROKER)))
        rolls = only(await ask(node, describe("0", "log.roll.ms", kind=BROKER)))
        assert (share.config_type, rolls.config_type) == (6, 5), "those of the topic's setting, as in Kafka"

    with_node(tmp_path, scenario, BrokerConfig(num_partitions=4))


@pytest.mark.parametrize(
    ("before", "changes", "after"),
    [
        (None, [("cleanup.policy", APPEND, "delete")], "delete"),
        (None, [("cleanup.policy", APPEND, "compact,delete,compact")], "delete,compact"),
        ("compact,delete", [("cleanup.policy", APPEND, "delete,compact")], "compact,delete"),
        ("compact,delete", [("cleanup.policy", SUBTRACT, "delete")], "compact"),
        ("compact", [("cleanup.policy", SUBTRACT, "delete")], "compact"),
        ("compact", [("cleanup.policy", DELETE, "ignored")], "delete"),
        (None, [("no.such.thing", DELETE, None)], "delete"),
    ],
)
def test_lists_grow_and_shrink_in_their_order(
    tmp_path: Path, before: str | None, changes: list[Change], after: str
) -> None:
    async def scenario(node: Node) -> None:
        node.parts.topics.create("t", 1, {} if before is None else {"cleanup.policy": before})
        assert (await ask(node, change(*changes))).responses[0].error_code == Code.NONE
        assert only(await ask(node, describe("t", "cleanup.policy"))).value == after

    with_node(tmp_path, scenario)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (change(("flush.ms", SET, "1"), ("retention.ms", SET, "soon")), Code.INVALID_CONFIG),
        (change(("flush.ms", SET, "1"), ("flush.ms", DELETE, None)), Code.INVALID_REQUEST),
        (change(("flush.ms", SET, None)), Code.INVALID_REQUEST),
        (change(("cleanup.policy", APPEND, None)), Code.INVALID_REQUEST),
        (change(("cleanup.policy", SUBTRACT, "delete"), ("flush.ms", SET, "1")), Code.INVALID_CONFIG),
        (change(("flush.ms", APPEND, "1")), Code.INVALID_CONFIG),
        (change(("no.such.thing", SET, "1")), Code.INVALID_CONFIG),
        (change(("flush.ms", SET, "1"), names=("t", "t")), Code.INVALID_REQUEST),
        (change(("flush.ms", SET, "1"), names=("",)), Code.INVALID_REQUEST),
        (change(("flush.ms", SET, "1"), names=("a b",)), Code.INVALID_TOPIC_EXCEPTION),
        (
            change(("min.compaction.lag.ms", SET, "5"), ("max.compaction.lag.ms", SET, "4")),
            Code.INVALID_CONFIG,
        ),
        (change(("flush.ms", SET, "1"), check_only=True), Code.NONE),
        (whole(("flush.ms", None)), Code.INVALID_REQUEST),
        (whole(("flush.ms", "1"), ("flush.ms", "2")), Code.INVALID_REQUEST),
        (whole(("flush.ms", "1"), ("no.such.thing", "1")), Code.INVALID_CONFIG),
        (whole(("flush.ms", "1"), names=("t", "t")), Code.INVALID_REQUEST),
        (whole(("flush.ms", "1"), check_only=True), Code.NONE),
    ],
)
def test_a_change_that_is_refused_or_only_checked_changes_nothing(
    tmp_path: Path, request_: Message, code: Code
) -> None:
    async def scenario(node: Node) -> None:
        node.parts.topics.create("t", 1, {"retention.ms": "77"})
        answer = await ask(node, request_)
        assert {result.error_code for result in answer.responses} == {code}
        topic = node.parts.topics.get("t")
        assert topic is not None and topic.configs == {"retention.ms": "77"}

    with_node(tmp_path, scenario)


@pytest.mark.parametrize(
    ("name", "given", "shown"),
    [
        ("retention.ms", " 7 ", "7"),
        ("retention.ms", "+7", "7"),
        ("preallocate", "TRUE", "true"),
        ("min.cleanable.dirty.ratio", "1e-1", "0.1"),
        ("cleanup.policy", "delete, compact", "delete,compact"),
        ("message.timestamp.type", " LogAppendTime ", "LogAppendTime"),
        ("leader.replication.throttled.replicas", "0:0,1:0", "0:0,1:0"),
    ],
)
def test_a_value_is_kept_in_one_way_of_writing_it(name: str, given: str, shown: str) -> None:
    assert check({name: given}) == {name: shown}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "1_000"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("min.cleanable.dirty.ratio", "1_0"),
        ("compression.gzip.level", "0"),
        ("compression.type", "GZIP"),
        ("leader.replication.throttled.replicas", "0:a"),
        ("remote.storage.enable", "true"),
        ("local.retention.ms", "-3"),
    ],
)
def test_what_kafka_does_not_read_as_a_value_is_refused(name: str, value: str) -> None:
    with pytest.raises(Refused) as refused:
        check({name: value})
    assert refused.value.code is Code.INVALID_CONFIG
