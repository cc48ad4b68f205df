"""One module for each Kafka API, and the table of them.

Owns: the APIs of this broker, and their versions.
Does not know: sockets.
Invariants: every API in `server.APIS` has a module here, named after the API (`list_groups` for ListGroups).
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Protocol, cast

from embedded_kafka.context import Context
from embedded_kafka.parts import Parts
from embedded_kafka.settings.config import BrokerConfig
from embedded_kafka.wire.server import (
    APIS,
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    InitProducerIdRequest,
    Message,
)


class Handler(Protocol):
    """The members of every module here. A module may also have:

    `REPEATABLE = True`: the request may run again for a newer answer, because a repetition has no further
    effect.
    `GROWS = "groups"`: the field of the answer that grows with what other clients have left behind.
    `ADVERTISED_FROM = 0`: the lowest advertised version, where the broker does not implement it.
    """

    API_KEY: int
    VERSIONS: tuple[int, int]

    async def handle(self, parts: Parts, request: Message, context: Context) -> Message | None:
        """Process the request; None where the client wants no answer."""


def _module(api: str) -> Handler:
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", api).lower()
    return cast(Handler, importlib.import_module(f"{__name__}.{name}"))


_MODULES = tuple(_module(api) for api in APIS)

HANDLERS: dict[int, Handler] = {module.API_KEY: module for module in _MODULES}
"""API key -> its module."""

REPEATABLE = frozenset(module.API_KEY for module in _MODULES if getattr(module, "REPEATABLE", False))

GROWS: dict[int, str] = {module.API_KEY: field for module in _MODULES if (field := getattr(module, "GROWS", ""))}


_OF_THE_CONSUMER_PROTOCOL = frozenset({
    ConsumerGroupDescribeRequest.API_KEY, ConsumerGroupHeartbeatRequest.API_KEY,
})  # fmt: skip


def versions(handler: Handler, config: BrokerConfig) -> tuple[int, int]:
    """Lowest and highest version of an API in this broker."""
    lowest, highest = handler.VERSIONS
    if handler.API_KEY == InitProducerIdRequest.API_KEY and not config.two_phase_commit:
        # Version 6 belongs to KIP-939, which Kafka keeps behind a setting.
        return lowest, min(highest, 5)
    return lowest, highest


def offered(config: BrokerConfig, older: Mapping[int, int] | None = None) -> dict[int, tuple[int, int]]:
    """API key -> the lowest and the highest version that this broker advertises; `older`: no higher one than these."""
    ranges = {
        api_key: versions(handler, config)
        for api_key, handler in HANDLERS.items()
        if config.consumer_protocol or api_key not in _OF_THE_CONSUMER_PROTOCOL
    }
    known = older or {}
    return {
        api_key: (getattr(HANDLERS[api_key], "ADVERTISED_FROM", lowest), min(highest, known.get(api_key, highest)))
        for api_key, (lowest, highest) in ranges.items()
        if known.get(api_key, highest) >= lowest
    }
