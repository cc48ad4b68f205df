"""Topics: their names, ids, partitions and configurations, and the log of each partition.

Owns: which topics exist, the file that lists them, opening and removing logs.
Does not know: requests, transactions, groups.
Invariants:
- A topic is in the file before any answer mentions it.
- A partition's directory is created on first use: the two internal topics have fifty each, and most are never used.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from embedded_kafka.clock import Clock
from embedded_kafka.log import PartitionLog
from embedded_kafka.log.tail import cut as cut_log
from embedded_kafka.refusals import Refused
from embedded_kafka.settings import topic_configs
from embedded_kafka.settings.config import BrokerConfig, LogConfig
from embedded_kafka.storage import read_json, write_json
from embedded_kafka.topics.internal_topics import CONTROLLERS_TOPIC, INTERNAL, OFFSETS_TOPIC, internal_configs
from kafka_core import runtime
from kafka_core.errors import LogDamaged
from kafka_core.protocol.error_codes import Code
from kafka_core.values import TopicPartition

_logger = logging.getLogger(__name__)

_FILE = "topics.json"
_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_REMOVED = ".removed"


def is_legal(name: str) -> bool:
    """Whether a topic may have this name."""
    return _LEGAL.fullmatch(name) is not None and name not in (".", "..")


def unified(name: str) -> str:
    """The form that colliding names share: Kafka's metrics replace dots with underscores."""
    return name.replace(".", "_")


@dataclass(frozen=True)
class Topic:
    """One topic. `replication_factor` is the requested one; a single broker stores it, and has one replica.
    `assigned`: the brokers of each partition, where the one who made the topic chose them.
    """

    name: str
    topic_id: UUID
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)
    replication_factor: int = 1
    assigned: tuple[tuple[int, ...], ...] = ()

    @property
    def internal(self) -> bool:
        """Whether this is one of the broker's own topics."""
        return self.name in INTERNAL


class Topics:
    """All topics of one data directory. `default_replicas`: of topics that are made without a number of replicas."""

    def __init__(self, directory: Path, config: BrokerConfig, clock: Clock, default_replicas: int = 1) -> None:
        self._directory = directory
        self._config = config
        self._clock = clock
        self.default_replicas = default_replicas
        self.on_more: Callable[[Topic, int], None] = lambda _topic, _first: None
        """Called with a topic that has more partitions than before, and the first of the new ones."""
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[UUID, str] = {}
        self._alike: dict[str, set[str]] = {}
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._offline: set[TopicPartition] = set()

    def load(self) -> None:
        """Read the file, finish removals that a crash interrupted, and recover every log that has a directory.

        A partition whose files are damaged stays offline until a start finds them repaired; the
        others start normally.
        """
        for entry in read_json(self._directory / _FILE) or []:
            self._remember(_from_json(entry))
        for path in self._directory.glob(f"*{_REMOVED}"):
            shutil.rmtree(path)
        for topic in list(self._topics.values()):
            for partition in range(topic.partitions):
                where = TopicPartition(topic.name, partition)
                if self._path(where).exists():
                    try:
                        self._open(where)
                    except (LogDamaged, OSError) as error:
                        self.take_offline(where, error)

    def close(self) -> None:
        """Close every log, so that the next start has nothing to recover."""
        for log in self._logs.values():
            log.close()
        self._logs.clear()

    def __iter__(self) -> Iterator[Topic]:
        return iter(list(self._topics.values()))

    def get(self, name: str) -> Topic | None:
        """The topic of that name."""
        return self._topics.get(name)

    def by_id(self, topic_id: UUID | None) -> Topic | None:
        """The topic of that id."""
        name = None if topic_id is None else self._by_id.get(topic_id)
        return None if name is None else self._topics[name]

    def has(self, where: TopicPartition) -> bool:
        """Whether the partition exists."""
        topic = self._topics.get(where.topic)
        return topic is not None and 0 <= where.partition < topic.partitions

    def log(self, where: TopicPartition) -> PartitionLog:
        """The partition's log; Refused(UNKNOWN_TOPIC_OR_PARTITION), (KAFKA_STORAGE_ERROR) where it is offline."""
        log = self._logs.get(where)
        if log is None:
            if where in self._offline:
                raise Refused(
                    Code.KAFKA_STORAGE_ERROR,
                    f"{where} is offline: the files in {self._path(where)} are damaged",
                )
            if not self.has(where):
                raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"partition {where} does not exist")
            log = self._open(where)
        return log

    def opened_log(self, where: TopicPartition) -> PartitionLog | None:
        """The partition's log, if it has been used."""
        return self._logs.get(where)

    def take_offline(self, where: TopicPartition, error: Exception) -> None:
        """Stop serving a partition, because its files are damaged; the files stay as they are."""
        log = self._logs.pop(where, None)
        if log is not None:
            log.abandon()
        self._offline.add(where)
        _logger.error(
            "%s is offline, its files in %s cannot be used: %s; repair them and restart the broker, or "
            "delete the topic",
            where, self._path(where), error,
        )  # fmt: skip

    def offline(self, topic: str) -> frozenset[int]:
        """The topic's partitions that the broker does not serve."""
        if not self._offline:
            return frozenset()
        return frozenset(where.partition for where in self._offline if where.topic == topic)

    def opened(self) -> Iterator[tuple[TopicPartition, PartitionLog]]:
        """The partitions that have been used."""
        return iter(list(self._logs.items()))

    def create(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str | None] | None = None,
        *,
        replication_factor: int = -1,
        assigned: tuple[tuple[int, ...], ...] = (),
        dry_run: bool = False,
    ) -> Topic:
        """Create a topic; -1 partitions or replicas stand for the defaults. Refused with Kafka's code.

        An internal topic always gets its own partitions and configurations, because the
        coordinators rely on them.
        """
        if not is_legal(name):
            raise Refused(
                Code.INVALID_TOPIC_EXCEPTION,
                f"Topic name is invalid: {name[:300]!r} (letters, digits, '.', '_' and '-', at most 249)",
            )
        if name == CONTROLLERS_TOPIC:
            raise Refused(Code.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
        if name in self._topics:
            raise Refused(Code.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        for other in self._alike.get(unified(name), ()):
            raise Refused(
                Code.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with the topic '{other}' ('.' is taken for '_')",
            )
        partitions = self._config.num_partitions if partitions == -1 else partitions
        replication_factor = self.default_replicas if replication_factor == -1 else replication_factor
        if partitions <= 0:
            raise Refused(Code.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
        if replication_factor <= 0:
            raise Refused(Code.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
        checked = topic_configs.check(configs or {})
        if name in INTERNAL:
            partitions, checked = self.internal_partitions(name), internal_configs(name, self.default_replicas)
            replication_factor, assigned = self.default_replicas, ()
        self._check_room(partitions)
        topic = Topic(name, runtime.uuid4(), partitions, checked, replication_factor, assigned)
        if not dry_run:
            self._save([*self._topics.values(), topic])
            self._remember(topic)
            self.on_more(topic, 0)
        return topic

    def ensure_internal(self, name: str) -> Topic:
        """The internal topic, created on first use with Kafka's settings for it."""
        known = self._topics.get(name)
        if known is None:
            return self.create(name, -1)
        partitions = self.internal_partitions(name)
        if known.partitions < partitions:
            # A broker with a smaller setting, or an older broker, created it with fewer. Loading its records
            # has succeeded by now, so they were written for this number of partitions.
            self.add_partitions(name, partitions)
        return self._topics[name]

    def internal_partitions(self, name: str) -> int:
        """How many partitions one of the broker's own topics has."""
        if name == OFFSETS_TOPIC:
            return self._config.offsets_topic_partitions
        return self._config.transaction_state_partitions

    def add_partitions(self, name: str, count: int, *, dry_run: bool = False) -> None:
        """Give a topic more partitions, `count` in all."""
        topic = self._known(name)
        if count <= topic.partitions:
            raise Refused(
                Code.INVALID_PARTITIONS,
                f"Topic currently has {topic.partitions} partitions, which is higher than the requested {count}."
                if count < topic.partitions
                else f"Topic already has {count} partitions.",
            )
        self._check_room(count - topic.partitions)
        if not dry_run:
            self._replace(replace(topic, partitions=count))
            self.on_more(self._topics[name], topic.partitions)

    def configure(self, name: str, configs: Mapping[str, str | None], *, dry_run: bool = False) -> None:
        """Set the topic's configurations to exactly these."""
        topic = self._known(name)
        checked = topic_configs.check(configs)
        if dry_run:
            return
        self._replace(replace(topic, configs=checked))
        for where, log in self._logs.items():
            if where.topic == name:
                log.reconfigure(self._log_config(self._topics[name]))

    def delete(self, name: str) -> None:
        """Remove a topic and its data; its file handles are closed first."""
        topic = self._known(name)
        if topic.internal:
            raise Refused(Code.INVALID_TOPIC_EXCEPTION, f"The internal topic {name} cannot be deleted.")
        self._save(other for other in self._topics.values() if other.name != name)
        del self._topics[name]
        del self._by_id[topic.topic_id]
        self._alike[unified(name)].discard(name)
        for where in [where for where in self._logs if where.topic == name]:
            # Not close(), which would flush files that are about to be removed.
            self._logs.pop(where).abandon()
        for partition in range(topic.partitions):
            path = self._path(TopicPartition(name, partition))
            self._offline.discard(TopicPartition(name, partition))
            if path.is_file():
                path.unlink()
            elif path.is_dir():
                # Renamed first: a crash must not leave half a log under a name that a new topic may have.
                gone = path.with_name(f"{topic.topic_id.hex}-{partition}{_REMOVED}")
                path.rename(gone)
                shutil.rmtree(gone)

    def cut(self, where: TopicPartition, offset: int) -> PartitionLog:
        """Drop the batch with this offset and everything after it, as if a leader without them was elected.
        Returns the shortened log.

        ValueError where the log has no such offset. What is in memory of one of the broker's own topics is stale then:
        its coordinator has to load it anew.
        """
        log = self.log(where)
        if not log.log_start_offset <= offset <= log.end_offset:
            raise ValueError(
                f"offset {offset} is not between the start {log.log_start_offset} and the end {log.end_offset} of {where}"
            )
        cut_log(self._path(where), self._logs.pop(where).abandon(), offset)
        return self._open(where)

    def _known(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        return topic

    def _check_room(self, more: int) -> None:
        total = sum(topic.partitions for topic in self._topics.values()) + more
        if total > self._config.max_partitions:
            raise Refused(
                Code.POLICY_VIOLATION,
                f"{total} partitions would be more than this broker's limit of {self._config.max_partitions}",
            )

    def _open(self, where: TopicPartition) -> PartitionLog:
        config = self._log_config(self._topics[where.topic])
        log = PartitionLog.open(self._path(where), config, now_ms=self._clock.now_ms())
        self._logs[where] = log
        return log

    def _log_config(self, topic: Topic) -> LogConfig:
        config = topic_configs.log_config(topic.configs, self._config.log)
        return replace(config, internal=True) if topic.internal else config

    def _path(self, where: TopicPartition) -> Path:
        return self._directory / str(where)

    def _remember(self, topic: Topic) -> None:
        self._topics[topic.name] = topic
        self._by_id[topic.topic_id] = topic.name
        self._alike.setdefault(unified(topic.name), set()).add(topic.name)

    def _replace(self, topic: Topic) -> None:
        self._save(topic if other.name == topic.name else other for other in self._topics.values())
        self._remember(topic)

    def _save(self, topics: Iterable[Topic]) -> None:
        write_json(self._directory / _FILE, [_to_json(topic) for topic in topics])


def _to_json(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id.hex,
        "partitions": topic.partitions,
        "configs": dict(topic.configs),
        "replication_factor": topic.replication_factor,
        **({"assigned": topic.assigned} if topic.assigned else {}),
    }


def _from_json(entry: dict[str, Any]) -> Topic:
    return Topic(
        entry["name"],
        UUID(entry["topic_id"]),
        entry["partitions"],
        entry["configs"],
        entry["replication_factor"],
        tuple(tuple(brokers) for brokers in entry.get("assigned", ())),
    )
