"""Configurations of single groups of the consumer protocol (Kafka's resource type GROUP), and the file that keeps them.

Owns: which names there are, the check of values, what is set for which group.
Does not know: requests, members, whether there is a group of that name: as in Kafka, that does not matter.
Invariants: what is set has been checked; a change is in the file before anyone sees it.

Kafka 4.4 has more names: about share groups, streams groups and how often a target is made, none of which is here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from embedded_kafka.groups.machine.consumer_value import ConsumerLimits
from embedded_kafka.refusals import Refused
from embedded_kafka.settings.config import BrokerConfig
from embedded_kafka.settings.settings import show
from embedded_kafka.settings.topic_configs import ConfigType, Setting, checked_values
from embedded_kafka.storage import read_json, write_json
from kafka_core.errors import LogDamaged
from kafka_core.protocol.error_codes import Code

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
_HIGHEST = 2**31 - 1
_AT_MOST = 10_000
"""Groups with a configuration of their own; Kafka has no limit, but every resource has one here."""
_FILE = "group_configs.json"


def _setting(name: str, note: str) -> Setting:
    broker = f"group.{name}"
    return Setting(show(BrokerConfig())[broker], ConfigType.INT, note=note, broker=broker, lowest=1, highest=_HIGHEST)


GROUP_SETTINGS: Mapping[str, Setting] = {
    HEARTBEAT: _setting(HEARTBEAT, "How often a member of the consumer protocol is told to send heartbeats."),
    SESSION: _setting(SESSION, "After which silence a member of the consumer protocol is considered dead."),
}


class GroupConfigs:
    """What is set for single groups; `config` has the values for all others."""

    def __init__(self, directory: Path, config: BrokerConfig) -> None:
        self._path = directory / _FILE
        self._shown = {name: show(config)[setting.broker] for name, setting in GROUP_SETTINGS.items()}
        self._of: dict[str, dict[str, str]] = {}

    def load(self) -> None:
        """Read the directory's. LogDamaged names the file where it cannot be read."""
        try:
            self._of = {str(group_id): dict(configs) for group_id, configs in (read_json(self._path) or {}).items()}
        except (ValueError, TypeError, AttributeError) as error:
            raise LogDamaged(
                "the file of the groups' configurations cannot be read; nothing was changed; restore it or remove it",
                {"file": str(self._path), "cause": repr(error)},
            ) from error

    def of(self, group_id: str) -> Mapping[str, str]:
        """The group's own configurations."""
        return self._of.get(group_id, {})

    def value_ms(self, group_id: str, name: str) -> int:
        """The value for a group, its own or the broker's."""
        return int(self.of(group_id).get(name, self._shown[name]))

    def limits(self, group_id: str, usual: ConsumerLimits) -> ConsumerLimits:
        """The limits of one group."""
        if group_id not in self._of:
            return usual
        session_ms, heartbeat_ms = self.value_ms(group_id, SESSION), self.value_ms(group_id, HEARTBEAT)
        return replace(usual, session_timeout_ms=session_ms, heartbeat_interval_ms=heartbeat_ms)

    def configure(self, group_id: str, configs: Mapping[str, str | None], *, dry_run: bool = False) -> None:
        """Set the group's configurations to exactly these. Refused(INVALID_CONFIG), with nothing changed."""
        checked = checked_values("group", GROUP_SETTINGS, configs)
        session, heartbeat = (int(checked.get(name, self._shown[name])) for name in (SESSION, HEARTBEAT))
        if session <= heartbeat:
            raise Refused(Code.INVALID_CONFIG, f"{SESSION} must be greater than {HEARTBEAT}")
        after = {**self._of, group_id: checked}
        if not checked:
            del after[group_id]
        if len(after) > max(_AT_MOST, len(self._of)):
            raise Refused(Code.POLICY_VIOLATION, f"this broker keeps configurations of at most {_AT_MOST} groups")
        if not dry_run:
            write_json(self._path, after)
            self._of = after
