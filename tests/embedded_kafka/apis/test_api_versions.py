"""ApiVersions 5 (KIP-1242): a client may name the cluster and the broker that it means to reach."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from kafka.protocol.metadata import ApiVersionsRequest as Librarys

from embedded_kafka.node import Node
from embedded_kafka.settings.config import BrokerConfig
from embedded_kafka.wire.server import ApiVersionsRequest, Message, MetadataRequest
from kafka_core.protocol.error_codes import Code
from tests.embedded_kafka.node_tools import ME, ask, with_node
from tests.embedded_kafka.security.doors import Line, asking, plain

NODE_ID = 3


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
