"""Configurations of single groups: what they change, that they are kept, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from embedded_kafka.groups.group_configs import HEARTBEAT, SESSION, GroupConfigs
from embedded_kafka.groups.machine.consumer_events import Beat
from embedded_kafka.node import Node
from embedded_kafka.refusals import Refused
from embedded_kafka.settings.config import BrokerConfig
from embedded_kafka.wire.server import ConsumerGroupHeartbeatRequest
from kafka_core.errors import LogDamaged
from kafka_core.protocol.error_codes import Code
from tests.embedded_kafka.groups.groups_world import World, run
from tests.embedded_kafka.groups.test_consumers import existing
from tests.embedded_kafka.node_tools import ask, with_node


def test_a_group_has_its_own_session_from_the_next_heartbeat_on(tmp_path: Path) -> None:
    async def test() -> None:
        world = World()
        world.configs._path = tmp_path / "configs.json"

        async def joined(group_id: str) -> None:
            event = Beat(
                world.clock.now_ms(), "a", 0, "c", "/h", rebalance_timeout_ms=9, topics=("t",), owned=frozenset()
            )
            await world.groups.consumer_heartbeat(group_id, event, existing)

        world.configs.configure("g", {SESSION: "2000"})
        await joined("g")
        await joined("other")
        world.pass_time(2_000)

        members = [len(group.members) for group in await world.groups.list()]
        assert members == [0, 1]

    run(test)


def test_a_group_is_told_its_own_interval_also_after_a_restart(tmp_path: Path) -> None:
    async def told(node: Node, group_id: str) -> int:
        request = ConsumerGroupHeartbeatRequest(
            version=1, group_id=group_id, member_id="a", member_epoch=0, instance_id=None, rack_id=None,
            rebalance_timeout_ms=9, subscribed_topic_names=["t"], subscribed_topic_regex=None, server_assignor=None,
            topic_partitions=[],
        )  # fmt: skip
        return int((await ask(node, request)).heartbeat_interval_ms)

    async def first(node: Node) -> None:
        node.parts.group_configs.configure("g", {HEARTBEAT: "77"})
        assert (await told(node, "g"), await told(node, "other")) == (77, 1_000)

    async def second(node: Node) -> None:
        assert await told(node, "g") == 77
        node.parts.group_configs.configure("g", {})
        assert await told(node, "g") == 1_000

    async def third(node: Node) -> None:
        assert await told(node, "g") == 1_000

    for scenario in (first, second, third):
        with_node(tmp_path / "kafka", scenario)


@pytest.mark.parametrize(
    "configs",
    [
        {"retention.ms": "1"},
        {SESSION: "0"},
        {SESSION: "x"},
        {SESSION: "1000"},
        {HEARTBEAT: "45000"},
        {SESSION: str(2**31)},
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_has_changed(tmp_path: Path, configs: dict[str, str]) -> None:
    kept = GroupConfigs(tmp_path, BrokerConfig())
    kept.configure("g", {SESSION: "5000"})

    with pytest.raises(Refused) as refused:
        kept.configure("g", dict(configs))

    assert refused.value.code is Code.INVALID_CONFIG
    assert kept.of("g") == {SESSION: "5000"}


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    kept = GroupConfigs(tmp_path, BrokerConfig())
    kept.configure("g", {SESSION: "5000"}, dry_run=True)
    kept.load()
    assert kept.of("g") == {}


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    kept = GroupConfigs(tmp_path, BrokerConfig())
    kept.configure("g", {SESSION: "5000"})
    (path,) = tmp_path.iterdir()
    path.write_text("[1]")

    with pytest.raises(LogDamaged, match="groups' configurations"):
        kept.load()
