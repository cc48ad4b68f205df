"""The source of each configuration's value, of a topic or of a group, as DescribeConfigs reports it.

Owns: the order of sources (KIP-226's synonyms).
Does not know: requests; the names and their defaults (`topic_configs`, `group_configs`).
Invariants:
- The first synonym wins and determines the source.
- A name without synonyms has Kafka's default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from embedded_kafka.settings.topic_configs import NEVER, SETTINGS, Setting


class Source(IntEnum):
    """Sources, numbered as in DescribeConfigs."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


@dataclass(frozen=True)
class Synonym:
    """A name that can set the value, and the value it has."""

    name: str
    value: str
    source: Source


def synonyms(
    name: str,
    configs: Mapping[str, str],
    given: Mapping[str, str],
    *,
    own: Source = Source.TOPIC,
    settings: Mapping[str, Setting] = SETTINGS,
) -> list[Synonym]:
    """Every source that gives this configuration a value, the effective one first. `configs`: the resource's own, of
    which `own` is the source; `given`: the broker settings that differ from their defaults."""
    found = []
    if name in configs:
        found.append(Synonym(name, configs[name], own))
    setting = settings[name]
    if setting.broker in given:
        found.append(Synonym(setting.broker, given[setting.broker], Source.STATIC_BROKER))
    if setting.broker and setting.default_of is not None:
        default_name, default = setting.default_of
        found.append(Synonym(default_name or setting.broker, default or setting.default, Source.DEFAULT))
    return found


def value_and_source(name: str, configs: Mapping[str, str], given: Mapping[str, str]) -> tuple[str, Source]:
    """The effective value and its source for a topic with these configurations of its own."""
    first = next(iter(synonyms(name, configs, given)), None)
    if first is None or first.source is Source.DEFAULT:
        return SETTINGS[name].default, Source.DEFAULT
    never = name == "flush.messages" and first.value == "0"
    return NEVER if never else first.value, first.source
