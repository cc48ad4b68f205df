"""AlterConfigs: set all configurations of a topic or a group at once; those not named return to their defaults.

IncrementalAlterConfigs (KIP-339) supersedes it, but older tools still send it. A running broker's
settings do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from embedded_kafka.apis.describe_configs import BROKER, GROUP, TOPIC
from embedded_kafka.context import Context
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.security.authorizer import CLUSTER
from embedded_kafka.topics.named import more_than_once
from embedded_kafka.topics.topics import is_legal
from embedded_kafka.wire.server import AlterConfigsRequest, AlterConfigsResponse, Message
from kafka_core.protocol.error_codes import Code

API_KEY: int = AlterConfigsRequest.API_KEY
VERSIONS = (0, 2)


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """Process each resource separately."""

    def wanted(asked: Message) -> dict[str, str | None]:
        check_names(asked.configs)
        check_values(asked.configs)
        return {config.name: config.value for config in asked.configs}

    return AlterConfigsResponse(
        version=request.API_VERSION,
        responses=alter_each(parts, request, wanted, AlterConfigsResponse.AlterConfigsResourceResponse),
    )


def alter_each(
    parts: Parts, request: Message, wanted: Callable[[Message], dict[str, str | None]], result: Any
) -> list[Message]:
    """Set each topic's and group's requested configurations; returns the outcomes, each as a `result` of the answer."""
    twice = more_than_once((asked.resource_type, asked.resource_name) for asked in request.resources)
    results = []
    for asked in request.resources:
        code, message = Code.NONE, None
        try:
            if (asked.resource_type, asked.resource_name) in twice:
                raise Refused(Code.INVALID_REQUEST, "Each resource must appear at most once.")
            _check_alterable(parts, asked.resource_type, asked.resource_name)
            resource = parts.group_configs if asked.resource_type == GROUP else parts.topics
            resource.configure(asked.resource_name, wanted(asked), dry_run=request.validate_only)
        except Refused as refused:
            code, message = refused.code, refused.message
        results.append(
            result(
                error_code=int(code),
                error_message=message,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
            )
        )
    return results


def check_names(configs: Sequence[Message]) -> None:
    """Refused where a configuration is named twice."""
    twice = more_than_once(config.name for config in configs)
    if twice:
        raise Refused(Code.INVALID_REQUEST, f"Error due to duplicate config keys: {', '.join(twice)}")


def check_values(configs: Iterable[Message]) -> None:
    """Refused where a value is null."""
    unset = [config.name for config in configs if config.value is None]
    if unset:
        raise Refused(Code.INVALID_REQUEST, f"Null value not supported for: {', '.join(unset)}")


def _check_alterable(parts: Parts, resource_type: int, name: str) -> None:
    if resource_type == BROKER:
        if not parts.authorizer.allows("ALTER_CONFIGS", "CLUSTER", CLUSTER):
            raise Refused(Code.CLUSTER_AUTHORIZATION_FAILED, "ALTER_CONFIGS on the cluster is denied")
        raise Refused(Code.INVALID_REQUEST, "the settings of this broker can only be set at its start")
    if resource_type == GROUP:
        if not parts.authorizer.allows("ALTER_CONFIGS", "GROUP", name):
            raise Refused(Code.GROUP_AUTHORIZATION_FAILED, f"ALTER_CONFIGS on group {name} is denied")
        if not name:
            raise Refused(Code.INVALID_REQUEST, "Default group resources are not allowed.")
        return
    if resource_type != TOPIC:
        raise Refused(Code.INVALID_REQUEST, f"resources of type {resource_type} have no configurations here")
    if not parts.authorizer.allows("ALTER_CONFIGS", "TOPIC", name):
        raise Refused(Code.TOPIC_AUTHORIZATION_FAILED, f"ALTER_CONFIGS on topic {name} is denied")
    if not name:
        raise Refused(Code.INVALID_REQUEST, "Default topic resources are not allowed.")
    if not is_legal(name):
        raise Refused(Code.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {name[:300]!r}")
    if parts.topics.get(name) is None:
        raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
