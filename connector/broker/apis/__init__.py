"""One module for each Kafka API, and the table of them.

Owns: which APIs in which versions this broker has.
Does not know: sockets.
Invariants: an API that `server.APIS` names has a module here, named as Kafka names the API (`list_groups` for ListGroups).
"""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Protocol, cast

from connector.protocol.server import APIS, InitProducerIdRequest, Message

if TYPE_CHECKING:
    from connector.broker.config import BrokerConfig
    from connector.broker.context import Context
    from connector.broker.node import Node


class Handler(Protocol):
    """Every module here has these, and may have more:

    `REPEATABLE = True`: the request can be done again for a newer answer, as nothing changes by it that would not be so anyway.
    `GROWS = "groups"`: the field of the answer that grows with what other clients have left.
    `ADVERTISED_FROM = 0`: a lowest version that is named to clients and not there.
    """

    API_KEY: int
    VERSIONS: tuple[int, int]

    async def handle(self, node: Node, request: Message, context: Context) -> Message | None:
        """Do what the request asks; None where the client wants no answer."""


def _module(api: str) -> Handler:
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", api).lower()
    return cast(Handler, importlib.import_module(f"{__name__}.{name}"))


_MODULES = tuple(_module(api) for api in APIS)

HANDLERS: dict[int, Handler] = {module.API_KEY: module for module in _MODULES}
"""API key -> its module."""

REPEATABLE = frozenset(module.API_KEY for module in _MODULES if getattr(module, "REPEATABLE", False))

GROWS: dict[int, str] = {
    module.API_KEY: field for module in _MODULES if (field := getattr(module, "GROWS", ""))
}

ADVERTISED_FROM: dict[int, int] = {
    module.API_KEY: lowest
    for module in _MODULES
    if (lowest := getattr(module, "ADVERTISED_FROM", None)) is not None
}


def versions(handler: Handler, config: BrokerConfig) -> tuple[int, int]:
    """Lowest and highest version of an API in this broker."""
    lowest, highest = handler.VERSIONS
    if handler.API_KEY == InitProducerIdRequest.API_KEY and not config.two_phase_commit:
        # Version 6 is KIP-939's, which Kafka keeps behind a setting.
        return lowest, min(highest, 5)
    return lowest, highest
