"""IncrementalAlterConfigs: set, delete, append to or subtract from single configurations of a topic (KIP-339).

Append and subtract are for lists.
"""

from __future__ import annotations

from embedded_kafka.apis.alter_configs import alter_each, check_names, check_values
from embedded_kafka.context import Context
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.settings.topic_configs import SETTINGS, ConfigType
from embedded_kafka.wire.server import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    Message,
)
from kafka_core.protocol.error_codes import Code

API_KEY: int = IncrementalAlterConfigsRequest.API_KEY
VERSIONS = (0, 1)

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """Process each resource separately. Its changes apply all together or not at all."""

    def wanted(asked: Message) -> dict[str, str | None]:
        return _changed(parts, asked.resource_name, asked.configs)

    return IncrementalAlterConfigsResponse(
        version=request.API_VERSION,
        responses=alter_each(parts, request, wanted, IncrementalAlterConfigsResponse.AlterConfigsResourceResponse),
    )


def _changed(parts: Parts, name: str, changes: list[Message]) -> dict[str, str | None]:
    check_names(changes)
    # Deleting a configuration that is not set is valid for any name.
    check_values(change for change in changes if change.config_operation != _DELETE)
    topic = parts.topics.get(name)
    configs: dict[str, str | None] = {} if topic is None else dict(topic.configs)
    for change in changes:
        key, value = change.name, change.value
        if change.config_operation == _DELETE:
            configs.pop(key, None)
        elif change.config_operation == _SET:
            configs[key] = value
        elif change.config_operation in (_APPEND, _SUBTRACT):
            setting = SETTINGS.get(key)
            if setting is None or setting.type is not ConfigType.LIST:
                raise Refused(Code.INVALID_CONFIG, f"Can't append to or subtract from {key}, which is not a list")
            before = configs.get(key)
            entries = [entry for entry in (setting.default if before is None else before).split(",") if entry]
            for each in value.split(","):
                if change.config_operation == _SUBTRACT and each in entries:
                    entries.remove(each)
                elif change.config_operation == _APPEND and each not in entries:
                    entries.append(each)
            configs[key] = ",".join(entries)
        else:
            raise Refused(Code.INVALID_REQUEST, f"Unknown operation type {change.config_operation}")
    return configs
