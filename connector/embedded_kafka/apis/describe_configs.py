"""DescribeConfigs: the configurations of topics, of groups and of this broker.

Version 1 adds the source of each value and its synonyms (KIP-226), version 3 its type and a sentence
of documentation (KIP-569). No value is sensitive. A topic's and a group's configurations can change; a running
broker's settings cannot.
"""

from __future__ import annotations

from collections.abc import Mapping

from embedded_kafka.context import Context
from embedded_kafka.groups.group_configs import GROUP_SETTINGS
from embedded_kafka.parts import Parts
from embedded_kafka.refusals import Refused
from embedded_kafka.security.authorizer import CLUSTER
from embedded_kafka.settings import settings, topic_configs
from embedded_kafka.settings.config import BrokerConfig
from embedded_kafka.settings.topic_configs import ConfigType
from embedded_kafka.topics.config_origins import Source, Synonym, synonyms, value_and_source
from embedded_kafka.topics.topics import is_legal
from embedded_kafka.wire.server import DescribeConfigsRequest, DescribeConfigsResponse, Message
from kafka_core.protocol.error_codes import Code

API_KEY: int = DescribeConfigsRequest.API_KEY
VERSIONS = (1, 4)
REPEATABLE = True

_FIRST_WITH_NOTES = 3

TOPIC, BROKER, GROUP = 2, 4, 32

_OF_A_BROKER = {row.broker: row for row in topic_configs.SETTINGS.values() if row.broker}

_Result = DescribeConfigsResponse.DescribeConfigsResult
_Config = _Result.DescribeConfigsResourceResult


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """Process each resource separately."""
    results = []
    for asked in request.resources:
        code, message, configs = Code.NONE, None, []
        try:
            configs = _configs(parts, asked.resource_type, asked.resource_name)
        except Refused as refused:
            code, message = refused.code, refused.message
        wanted = asked.configuration_keys
        configs = [config for config in configs if not wanted or config.name in wanted]
        for config in configs:
            if not request.include_synonyms:
                config.synonyms = []
            if request.API_VERSION < _FIRST_WITH_NOTES or not request.include_documentation:
                config.documentation = None
        results.append(
            _Result(
                error_code=int(code),
                error_message=message,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
                configs=configs,
            )
        )
    return DescribeConfigsResponse(version=request.API_VERSION, results=results)


def _configs(parts: Parts, resource_type: int, name: str) -> list[Message]:
    if resource_type == TOPIC:
        if not parts.authorizer.allows("DESCRIBE_CONFIGS", "TOPIC", name):
            raise Refused(Code.TOPIC_AUTHORIZATION_FAILED, f"DESCRIBE_CONFIGS on topic {name} is denied")
        topic = parts.topics.get(name)
        if topic is None and not is_legal(name):
            raise Refused(Code.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {name[:300]!r}")
        if topic is None:
            raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        given = settings.given(parts.config)
        return [_of_topic(key, topic.configs, given) for key in topic_configs.SETTINGS]
    if resource_type == GROUP:
        if not parts.authorizer.allows("DESCRIBE_CONFIGS", "GROUP", name):
            raise Refused(Code.GROUP_AUTHORIZATION_FAILED, f"DESCRIBE_CONFIGS on group {name} is denied")
        if not name:
            raise Refused(Code.INVALID_REQUEST, "Group name must not be empty")
        given = settings.given(parts.config)
        return [_of_group(key, parts.group_configs.of(name), given) for key in GROUP_SETTINGS]
    if resource_type == BROKER:
        if not parts.authorizer.allows("DESCRIBE_CONFIGS", "CLUSTER", CLUSTER):
            raise Refused(Code.CLUSTER_AUTHORIZATION_FAILED, "DESCRIBE_CONFIGS on the cluster is denied")
        if name not in ("", str(parts.config.node_id)):
            raise Refused(
                Code.INVALID_REQUEST,
                f"Unexpected broker id, expected {parts.config.node_id} but received {name}",
            )
        given = settings.given(parts.config)
        default = settings.show(BrokerConfig())
        return [_of_broker(key, default[key], given.get(key)) for key in default]
    raise Refused(Code.INVALID_REQUEST, f"resources of type {resource_type} have no configurations here")


def _of_topic(name: str, configs: Mapping[str, str], given: Mapping[str, str]) -> Message:
    value, source = value_and_source(name, configs, given)
    setting = topic_configs.SETTINGS[name]
    return _config(name, value, source, synonyms(name, configs, given), setting.type, setting.note, fixed=False)


def _of_group(name: str, configs: Mapping[str, str], given: Mapping[str, str]) -> Message:
    setting = GROUP_SETTINGS[name]
    names = synonyms(name, configs, given, own=Source.GROUP, settings=GROUP_SETTINGS)
    return _config(name, names[0].value, names[0].source, names, setting.type, setting.note, fixed=False)


def _of_broker(name: str, default: str, given: str | None) -> Message:
    names = [Synonym(name, default, Source.DEFAULT)]
    if given is not None:
        names.insert(0, Synonym(name, given, Source.STATIC_BROKER))
    row = _OF_A_BROKER.get(name)
    return _config(
        name,
        names[0].value,
        names[0].source,
        names,
        row.type if row else settings.type_of(name),
        row.note if row else None,
        fixed=True,
    )


def _config(
    name: str, value: str, source: Source, names: list[Synonym], kind: ConfigType, note: str | None, *, fixed: bool
) -> Message:  # fmt: skip
    return _Config(
        name=name,
        value=value,
        read_only=fixed,
        config_source=int(source),
        is_sensitive=False,
        synonyms=[
            _Config.DescribeConfigsSynonym(name=each.name, value=each.value, source=int(each.source)) for each in names
        ],
        config_type=int(kind),
        documentation=note,
    )
