"""DescribeConfigs: the configurations of topics and of this broker.

Version 3 adds each one's type. Documentation is not given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from connector.broker import settings, topic_configs
from connector.broker.refusals import Refused
from connector.broker.topic_configs import ConfigType
from connector.protocol.error_codes import Code
from connector.protocol.server import DescribeConfigsRequest, DescribeConfigsResponse, Message

if TYPE_CHECKING:
    from connector.broker.context import Context
    from connector.broker.node import Node

API_KEY: int = DescribeConfigsRequest.API_KEY
VERSIONS = (1, 4)

TOPIC, BROKER = 2, 4
_TOPIC_CONFIG, _STATIC_BROKER_CONFIG, _DEFAULT_CONFIG = 1, 4, 5

_Result = DescribeConfigsResponse.DescribeConfigsResult
_Config = _Result.DescribeConfigsResourceResult


async def handle(node: Node, request: Message, _context: Context) -> Message:
    """Each resource by itself."""
    results = []
    for asked in request.resources:
        code, message, configs = Code.NONE, None, []
        try:
            configs = _configs(node, asked.resource_type, asked.resource_name, request.include_synonyms)
        except Refused as refused:
            code, message = refused.code, refused.message
        wanted = asked.configuration_keys
        results.append(
            _Result(
                error_code=int(code),
                error_message=message,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
                configs=[config for config in configs if not wanted or config.name in wanted],
            )
        )
    return DescribeConfigsResponse(version=request.API_VERSION, results=results)


def _configs(node: Node, resource_type: int, name: str, synonyms: bool) -> list[Message]:
    if resource_type == TOPIC:
        if not node.authorizer.allows("DESCRIBE_CONFIGS", "TOPIC", name):
            raise Refused(Code.TOPIC_AUTHORIZATION_FAILED, f"DESCRIBE_CONFIGS on topic {name} is denied")
        topic = node.topics.get(name)
        if topic is None:
            raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        defaults = {"max.message.bytes": str(node.config.log.max_message_bytes)}
        return [
            _config(
                key,
                topic.configs.get(key, defaults.get(key, setting.default)),
                setting.type,
                _TOPIC_CONFIG if key in topic.configs else _DEFAULT_CONFIG,
                synonyms,
            )
            for key, setting in topic_configs.SETTINGS.items()
        ]
    if resource_type == BROKER:
        if not node.authorizer.allows("DESCRIBE_CONFIGS", "CLUSTER", "kafka-cluster"):
            raise Refused(Code.CLUSTER_AUTHORIZATION_FAILED, "DESCRIBE_CONFIGS on the cluster is denied")
        if name not in ("", str(node.config.node_id)):
            raise Refused(
                Code.INVALID_REQUEST,
                f"Unexpected broker id, expected {node.config.node_id} but received {name}",
            )
        return [
            _config(key, value, _type_of(value), _STATIC_BROKER_CONFIG, synonyms)
            for key, value in settings.show(node.config).items()
        ]
    raise Refused(Code.INVALID_REQUEST, f"resources of type {resource_type} have no configurations here")


def _type_of(value: str) -> ConfigType:
    return ConfigType.BOOLEAN if value in ("true", "false") else ConfigType.LONG


def _config(name: str, value: str, kind: ConfigType, source: int, synonyms: bool) -> Message:
    return _Config(
        name=name,
        value=value,
        read_only=source == _STATIC_BROKER_CONFIG,
        config_source=source,
        is_sensitive=False,
        synonyms=[_Config.DescribeConfigsSynonym(name=name, value=value, source=source)] if synonyms else [],
        config_type=int(kind),
        documentation=None,
    )
