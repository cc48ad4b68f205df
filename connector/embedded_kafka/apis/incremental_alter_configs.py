"""IncrementalAlterConfigs: set, delete, append to or subtract from configurations of a topic or a group (KIP-339).

Append and subtract are for lists.
"""

from __future__ import annotations

from collections.abc import Mapping

from embedded_kafka.apis.alter_configs import alter_each, check_names, check_values
from embedded_kafka.apis.describe_configs import GROUP
from embedded_kafka.context import Context
from embedded_kafka.groups.group_configs import GROUP_SETTINGS
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.settings.topic_configs import SETTINGS, ConfigType, Setting
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
        if asked.resource_type == GROUP:
            return _changed(parts.group_configs.of(asked.resource_name), asked.configs, GROUP_SETTINGS)
        topic = parts.topics.get(asked.resource_name)
        return _changed({} if topic is None else topic.configs, asked.configs, SETTINGS)

    return IncrementalAlterConfigsResponse(
        version=request.API_VERSION,
        responses=alter_each(parts, request, wanted, IncrementalAlterConfigsResponse.AlterConfigsResourceResponse),
    )


def _changed(own: Mapping[str, str], changes: list[Message], settings: Mapping[str, Setting]) -> dict[str, str | None]:
    check_names(changes)
    # Deleting a configuration that is not set is valid for any name.
    check_values(change for change in changes if change.config_operation != _DELETE)
    configs: dict[str, str | None] = dict(own)
    for change in changes:
        key, value = change.name, change.value
        if change.config_operation == _DELETE:
            configs.pop(key, None)
        elif change.config_operation == _SET:
            configs[key] = value
        elif change.config_operation in (_APPEND, _SUBTRACT):
            setting = settings.get(key)
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
