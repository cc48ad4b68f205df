"""IncrementalAlterConfigs: set, delete, append to or subtract from single configurations of a topic (KIP-339).

Append and subtract are for lists.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from connector.broker.apis.alter_configs import alter_each
from connector.broker.refusals import Refused
from connector.broker.topic_configs import SETTINGS, ConfigType
from connector.protocol.error_codes import Code
from connector.protocol.server import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    Message,
)

if TYPE_CHECKING:
    from connector.broker.context import Context
    from connector.broker.node import Node

API_KEY: int = IncrementalAlterConfigsRequest.API_KEY
VERSIONS = (0, 1)

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


async def handle(node: Node, request: Message, _context: Context) -> Message:
    """Each resource by itself; its changes together or not at all."""

    def wanted(asked: Message) -> dict[str, str | None]:
        return _changed(node, asked.resource_name, asked.configs)

    return IncrementalAlterConfigsResponse(
        version=request.API_VERSION,
        responses=alter_each(
            node, request, wanted, IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
        ),
    )


def _changed(node: Node, name: str, changes: list[Message]) -> dict[str, str | None]:
    named = Counter(change.name for change in changes)
    twice = [key for key, count in named.items() if count > 1]
    if twice:
        raise Refused(Code.INVALID_REQUEST, f"Error due to duplicate config keys: {', '.join(twice)}")
    topic = node.topics.get(name)
    configs: dict[str, str | None] = {} if topic is None else dict(topic.configs)
    for change in changes:
        key, value = change.name, change.value
        if change.config_operation == _DELETE:
            # Nothing to delete is no mistake, whatever the name.
            configs.pop(key, None)
        elif value is None:
            raise Refused(Code.INVALID_REQUEST, f"Null value not supported for {key}")
        elif change.config_operation == _SET:
            configs[key] = value
        elif change.config_operation in (_APPEND, _SUBTRACT):
            setting = SETTINGS.get(key)
            if setting is None or setting.type is not ConfigType.LIST:
                raise Refused(
                    Code.INVALID_CONFIG, f"Can't append to or subtract from {key}, which is no list"
                )
            before = [part for part in (configs.get(key) or setting.default).split(",") if part]
            given = value.split(",")
            kept = [part for part in before if part not in given]
            configs[key] = ",".join(kept + given if change.config_operation == _APPEND else kept)
        else:
            raise Refused(Code.INVALID_REQUEST, f"Unknown operation type {change.config_operation}")
    return configs
