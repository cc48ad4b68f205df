"""The broker's settings as text, under Kafka's own names: parsing and display.

Owns: the valid names, and the check that rejects values that cannot work.
Does not know: what the settings do (`config`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from embedded_kafka.settings.config import STANDARD_AUTHORIZER, BrokerConfig, LogConfig, SecurityConfig
from embedded_kafka.settings.topic_configs import SETTINGS, ConfigType
from kafka_core.errors import OptionsError
from kafka_core.similar import did_you_mean

_OWN = {
    "allow.everyone.if.no.acl.found": "security.allow_everyone",
    "authorizer.class.name": "security.authorizer",
    "auto.create.topics.enable": "auto_create_topics_enable",
    "broker.session.timeout.ms": "broker_session_timeout_ms",
    "connections.max.reauth.ms": "security.max_reauth_ms",
    "fetch.max.bytes": "fetch_max_bytes",
    "group.consumer.assignors": "group_consumer_assignors",
    "group.consumer.heartbeat.interval.ms": "group_consumer_heartbeat_interval_ms",
    "group.consumer.max.size": "group_consumer_max_size",
    "group.consumer.migration.policy": "group_consumer_migration_policy",
    "group.consumer.session.timeout.ms": "group_consumer_session_timeout_ms",
    "group.coordinator.rebalance.protocols": "group_coordinator_rebalance_protocols",
    "group.initial.rebalance.delay.ms": "group_initial_rebalance_delay_ms",
    "group.max.session.timeout.ms": "group_max_session_timeout_ms",
    "group.max.size": "group_max_size",
    "group.min.session.timeout.ms": "group_min_session_timeout_ms",
    "log.cleaner.backoff.ms": "cleaner_backoff_ms",
    "log.retention.check.interval.ms": "log_retention_check_interval_ms",
    "max.connections": "max_connections",
    "node.id": "node_id",
    "num.partitions": "num_partitions",
    "offset.metadata.max.bytes": "offset_metadata_max_bytes",
    "offsets.retention.ms": "offsets_retention_ms",
    "offsets.topic.num.partitions": "offsets_topic_partitions",
    "producer.id.expiration.ms": "log.producer_id_expiration_ms",
    "sasl.enabled.mechanisms": "security.mechanisms",
    "sasl.oauthbearer.expected.audience": "security.audience",
    "sasl.oauthbearer.expected.issuer": "security.issuer",
    "sasl.oauthbearer.jwks.endpoint.url": "security.jwks_url",
    "sasl.oauthbearer.sub.claim.name": "security.user_claim",
    "sasl.users.file": "security.users_file",
    "security.protocol": "security.protocol",
    "socket.request.max.bytes": "socket_request_max_bytes",
    "ssl.client.auth": "security.client_auth",
    "ssl.keystore.location": "security.keystore_location",
    "ssl.truststore.location": "security.truststore_location",
    "super.users": "security.super_users",
    "transaction.max.timeout.ms": "transaction_max_timeout_ms",
    "transaction.state.log.num.partitions": "transaction_state_partitions",
    "transaction.two.phase.commit.enable": "two_phase_commit",
    "transaction.version": "transaction_version",
    "transactional.id.expiration.ms": "transactional_id_expiration_ms",
}
NAMES: dict[str, str] = dict(
    sorted({**_OWN, **{row.broker: f"log.{row.field}" for row in SETTINGS.values() if row.field}}.items())
)
"""Kafka's name -> field of BrokerConfig, or of its `log` or `security`. (transaction.version is a feature in Kafka, not
a setting; security.protocol is in Kafka a part of `listeners`; sasl.users.file is ours.)
"""

_FIXED = {
    "broker.id": "node.id",
    "default.replication.factor": None,
    "min.insync.replicas": None,
    "unstable.api.versions.enable": "transaction.two.phase.commit.enable",
}
"""Settings that are shown and cannot be set: the name whose value each repeats, or None for 1."""

_CHOICES = {
    "authorizer.class.name": ("", STANDARD_AUTHORIZER),
    "group.consumer.assignors": ("uniform,range", "range,uniform", "uniform", "range"),
    "group.consumer.migration.policy": ("bidirectional", "upgrade", "downgrade", "disabled"),
    "group.coordinator.rebalance.protocols": ("classic,consumer", "classic"),
    "security.protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "ssl.client.auth": ("none", "requested", "required"),
}

_TYPES = {
    **dict.fromkeys(
        (
            "connections.max.reauth.ms", "log.cleaner.backoff.ms", "log.retention.check.interval.ms", "offsets.retention.ms",
        ),
        ConfigType.LONG,
    ),
    **dict.fromkeys(
        (
            "group.consumer.assignors", "group.coordinator.rebalance.protocols", "sasl.enabled.mechanisms",
            "sasl.oauthbearer.expected.audience",
        ),
        ConfigType.LIST,
    ),
}  # fmt: skip
"""Kafka's types of the settings in `_OWN` whose default's type does not say it: a number is an INT there, and a text a
STRING. `tests/differential` compares all of them."""

_MAY_BE_NEGATIVE = frozenset(row.broker for row in SETTINGS.values() if row.field and row.lowest < 0)


def parse(settings: Mapping[str, str]) -> BrokerConfig:
    """The broker's configuration; OptionsError names a setting that is unknown or whose value cannot work."""
    fields: dict[str, dict[str, Any]] = {"": {}, "log": {}, "security": {}}
    for name, value in settings.items():
        field = NAMES.get(name)
        if field is None:
            hint = did_you_mean(name, NAMES) or f"; known settings: {', '.join(NAMES)}"
            raise OptionsError(f"the embedded broker has no setting {name}{hint}", {"setting": name})
        whole, _, part = field.rpartition(".")
        fields[whole][part] = _value(name, value)
    return BrokerConfig(**fields[""], log=LogConfig(**fields["log"]), security=SecurityConfig(**fields["security"]))


def show(config: BrokerConfig) -> dict[str, str]:
    """Every setting with its value."""
    shown = {name: _text(_get(config, field)) for name, field in NAMES.items()}
    shown |= {name: "1" if same is None else shown[same] for name, same in _FIXED.items()}
    return dict(sorted(shown.items()))


def type_of(name: str) -> ConfigType:
    """Kafka's type of a broker's setting that is none of a topic's too."""
    same = _FIXED.get(name, name)
    default = 1 if same is None else _get(BrokerConfig(), NAMES[same])
    usual = {bool: ConfigType.BOOLEAN, str: ConfigType.STRING}.get(type(default), ConfigType.INT)
    return _TYPES.get(name, usual)


def given(config: BrokerConfig) -> dict[str, str]:
    """The settings that differ from their defaults."""
    default = show(BrokerConfig())
    return {name: value for name, value in show(config).items() if value != default[name]}


def _get(config: BrokerConfig, field: str) -> Any:
    whole, _, part = field.rpartition(".")
    return getattr(getattr(config, whole) if whole else config, part)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _value(name: str, value: str) -> int | bool | float | str:
    default = _get(BrokerConfig(), NAMES[name])
    if isinstance(default, str):
        return _text_value(name, value)
    if isinstance(default, bool):
        if value.lower() not in ("true", "false"):
            raise OptionsError(f"{name} must be true or false, not {value!r}", {"setting": name})
        return value.lower() == "true"
    if isinstance(default, float):
        return _share(name, value)
    try:
        number = int(value)
    except ValueError:
        raise OptionsError(f"{name} must be a whole number, not {value!r}", {"setting": name}) from None
    lowest = -1 if name in _MAY_BE_NEGATIVE else 0
    if number < lowest or (name == "transaction.version" and number > 2):
        raise OptionsError(f"{name} cannot be {number}", {"setting": name})
    return number


def _text_value(name: str, value: str) -> str:
    choices = _CHOICES.get(name)
    if choices is not None and value not in choices:
        raise OptionsError(f"{name} must be one of {', '.join(choices)}, not {value!r}", {"setting": name})
    return value


def _share(name: str, value: str) -> float:
    try:
        share = float(value)
    except ValueError:
        raise OptionsError(f"{name} must be a number, not {value!r}", {"setting": name}) from None
    if not 0 <= share <= 1:
        raise OptionsError(f"{name} must be between 0 and 1, not {value}", {"setting": name})
    return share
