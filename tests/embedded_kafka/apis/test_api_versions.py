"""ApiVersions: version 5 (KIP-1242), whose client may name the cluster and the broker that it means to reach; which
protocols of groups are offered.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from kafka.protocol.metadata import ApiVersionsRequest as Librarys

from embedded_kafka.node import Node
from embedded_kafka.refusals import Disconnect
from embedded_kafka.settings.config import BrokerConfig
from embedded_kafka.wire.server import ApiVersionsRequest, ConsumerGroupHeartbeatRequest, Message, MetadataRequest
from kafka_core.protocol.error_codes import Code
from tests.embedded_kafka.node_tools import ME, ask, with_node
from tests.embedded_kafka.security.doors import Line, asking, plain

NODE_ID = 3
CONSUMER_GROUP_APIS, SHARE_GROUP_APIS, STREAMS_GROUP_APIS = {68, 69}, {76, 77, 78, 79}, {88, 89}


def naming(cluster_id: str | None, node_id: int, version: int = 5) -> Message:
    named = {"cluster_id": cluster_id, "node_id": node_id} if version >= 5 else {}
    return ApiVersionsRequest(version=version, client_software_name="test", client_software_version="1", **named)


async def code_of(node: Node, request: Message) -> int:
    """The error code of the answer. The library would read any refusal as version 0; these are as short as one can
    be.
    """
    request.with_header(correlation_id=7, client_id=ME.client_id)
    frame = memoryview(bytes(request.encode(header=True, framed=True)))[4:]
    answer = await node.answer(frame, lambda _client_id: ME)
    assert answer is not None
    length, number, code = struct.unpack_from(">iih", answer)
    assert (length, number) == (len(answer) - 4, 7)
    # No API, no throttling, no tagged field.
    assert code == Code.NONE or bytes(answer[10:]) == b"\x01\0\0\0\0\0"
    return int(code)


@pytest.mark.parametrize(
    ("cluster", "node_id", "code"),
    [
        (None, -1, Code.NONE),
        ("{own}", NODE_ID, Code.NONE),
        ("{own}", NODE_ID + 1, Code.REBOOTSTRAP_REQUIRED),
        ("another", NODE_ID, Code.REBOOTSTRAP_REQUIRED),
        ("", NODE_ID, Code.REBOOTSTRAP_REQUIRED),
        ("{own}", -1, Code.INVALID_REQUEST),
        (None, NODE_ID, Code.INVALID_REQUEST),
    ],
)
def test_a_broker_that_is_not_the_one_that_was_named_says_so(
    tmp_path: Path, cluster: str | None, node_id: int, code: Code
) -> None:
    async def scenario(node: Node) -> None:
        named = None if cluster is None else cluster.format(own=node.parts.cluster_id)
        assert await code_of(node, naming(named, node_id)) == code
        # The same connection may ask again.
        assert await code_of(node, naming(node.parts.cluster_id, NODE_ID)) == Code.NONE

    with_node(tmp_path / "broker", scenario, BrokerConfig(node_id=NODE_ID))


@pytest.mark.parametrize("version", [3, 4])
def test_a_request_before_version_5_names_nobody_and_lists_the_same(tmp_path: Path, version: int) -> None:
    async def scenario(node: Node) -> None:
        newest = await ask(node, naming(None, -1))
        older = await ask(node, naming(None, -1, version))
        assert older.error_code == newest.error_code == Code.NONE
        assert older.api_keys == newest.api_keys
        [own] = [each for each in newest.api_keys if each.api_key == ApiVersionsRequest.API_KEY]
        assert (own.min_version, own.max_version) == (0, 5)

    with_node(tmp_path / "broker", scenario)


@pytest.mark.parametrize("version", range(5))
def test_requests_before_version_5_are_the_bytes_of_the_library(version: int) -> None:
    named = {"client_software_name": "test", "client_software_version": "1"} if version >= 3 else {}
    ours, theirs = (cls(version=version, **named).encode() for cls in (ApiVersionsRequest, Librarys))
    assert bytes(ours) == bytes(theirs)


def test_a_login_compares_nothing_and_the_broker_behind_it_does(tmp_path: Path) -> None:
    with asking(tmp_path, "SASL_PLAINTEXT", "PLAIN") as kafka, Line(kafka) as line:
        assert line.ask(naming("another", 0)).error_code == Code.NONE
        line.handshake("PLAIN")
        assert line.message(plain("alice", "alice's secret")).error_code == Code.NONE
        assert struct.unpack_from(">h", line.raw(naming("another", 0)), 4) == (Code.REBOOTSTRAP_REQUIRED,)
        own = line.ask(MetadataRequest(version=12, topics=[])).cluster_id
        assert line.ask(naming(own, 0)).error_code == Code.NONE


@pytest.mark.parametrize(("protocols", "offered"), [("classic,consumer", True), ("classic", False)])
def test_the_consumer_protocol_is_offered_with_its_feature_or_not_at_all(
    tmp_path: Path, protocols: str, offered: bool
) -> None:
    """KIP-848. A client asks the broker for its APIs before it joins, so one to which they are not offered says so at
    once; the same holds for share groups and streams groups (KIP-932, KIP-1071), which this broker never has.
    """

    async def scenario(node: Node) -> None:
        answer = await ask(node, naming(None, -1))
        keys = {each.api_key for each in answer.api_keys}
        finalized = {each.name: each.max_version_level for each in answer.finalized_features}
        assert keys & CONSUMER_GROUP_APIS == (CONSUMER_GROUP_APIS if offered else set())
        assert finalized.get("group.version", 0) == int(offered)
        assert not keys & (SHARE_GROUP_APIS | STREAMS_GROUP_APIS)
        heartbeat = ConsumerGroupHeartbeatRequest(version=1, group_id="g", member_id="m", member_epoch=1)
        if offered:
            assert (await ask(node, heartbeat)).error_code == Code.GROUP_ID_NOT_FOUND
        else:
            with pytest.raises(Disconnect):
                await ask(node, heartbeat)

    config = BrokerConfig(group_coordinator_rebalance_protocols=protocols)
    with_node(tmp_path / "broker", scenario, config)
