"""One run of one way after another, on brokers that all ways share.

Owns: the topics, the processes that write, what a run is.
Does not know: the order of the runs, the meaning of the numbers.
Invariants:
- Every run writes to a topic of its own with the same settings in the same broker.
- Nothing of a run is left when the next one begins.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks import report
from benchmarks.catalogue import NEWEST, ON_EMBEDDED, PEER, TUNED_JVM, Variant, nearest
from benchmarks.children import Child, cpu_seconds

REPLAYERS = 2
_ADMIN_TIMEOUT_S = 30


@dataclass(frozen=True)
class Target:
    """A broker under test."""

    bootstrap_servers: str
    process_id: int


class Bench:
    """The brokers and the processes that write to them."""

    def __init__(
        self,
        targets: dict[bool, Target],
        children: dict[str, Child],
        replayers: dict[str, list[Child]],
        partitions: int,
        tls: dict[str, str],
    ) -> None:
        from confluent_kafka.admin import AdminClient

        self._targets = targets
        self._children = children
        self._replayers = replayers
        self._partitions = partitions
        self._tls = tls
        self._admins = {
            embedded: AdminClient({"bootstrap.servers": target.bootstrap_servers, "log_level": 0})
            for embedded, target in targets.items()
        }
        self._topics = 0
        self._filled: tuple[str, int] | None = None
        """The topic that sources read, and how many times it has the data."""

    def load(self, value_bytes: int, records: int, *, words: bool) -> None:
        """Prepare the data in every process."""
        for child in self._children.values():
            for kind in (False, True) if words else (False,):
                child.ask(
                    "load",
                    name=_name(value_bytes, words=kind),
                    value_bytes=value_bytes,
                    records=records,
                    partitions=self._partitions,
                    words=kind,
                )
        for seed, child in (each for group in self._replayers.values() for each in enumerate(group)):
            share = records // REPLAYERS + (records % REPLAYERS if seed == 0 else 0)
            child.ask(
                "load",
                name=_name(value_bytes, words=False),
                value_bytes=value_bytes,
                records=share,
                partitions=self._partitions,
                seed=seed,
            )

    def unload(self) -> None:
        """Release the memory."""
        for child in [
            *self._children.values(),
            *(each for group in self._replayers.values() for each in group),
        ]:
            child.ask("unload")
        if self._filled is not None:
            self._delete(self._filled[0], False)
            self._filled = None

    def run(self, variant: Variant, value_bytes: int, number: int, passes: int) -> report.Run:
        """One run: into a new topic, or from the one that has the data that many times."""
        if variant.reads:
            answer = self._read(variant, value_bytes, passes)
        else:
            answer = self._write(variant, value_bytes, passes)
        return report.Run(variant.name, value_bytes, number, **answer)

    def _write(self, variant: Variant, value_bytes: int, passes: int) -> dict[str, Any]:
        embedded = variant.application in ON_EMBEDDED
        process_id = self._targets[embedded].process_id
        with self._topic(embedded) as topic:
            broker_cpu = cpu_seconds(process_id)
            if variant.application in self._replayers:
                answer = self._replay(self._replayers[variant.application], value_bytes, topic, passes)
            else:
                answer = self._children[variant.application].ask(
                    "write",
                    name=_name(value_bytes, words=variant.words),
                    way=variant.way,
                    topic=topic,
                    options=variant.options_for(value_bytes) | (self._tls if variant.tls else {}),
                    passes=passes,
                )
            return answer | {"broker_cpu_seconds": round(cpu_seconds(process_id) - broker_cpu, 2)}

    def _fill(self, value_bytes: int, passes: int) -> str:
        """The topic that the sources read. Spark's JVM sink writes it where it runs, with its tuned batches: large
        ones, as in a busy topic.
        """
        if self._filled is not None and self._filled[1] == passes:
            return self._filled[0]
        if self._filled is not None:
            self._delete(self._filled[0], False)
        self._filled = (self._create(False), passes)
        peer = self._children.get(PEER)
        child = peer or self._children[NEWEST]
        child.ask(
            "write",
            name=_name(value_bytes, words=False),
            way="jvm" if peer else "at-least-once",
            topic=self._filled[0],
            options=nearest(TUNED_JVM, value_bytes) if peer else {},
            passes=passes,
        )
        return self._filled[0]

    def _read(self, variant: Variant, value_bytes: int, passes: int) -> dict[str, Any]:
        topic = self._fill(value_bytes, passes)
        process_id = self._targets[False].process_id
        broker_cpu = cpu_seconds(process_id)
        name = _name(value_bytes, words=False)
        answer = self._children[variant.application].ask(
            "read", name=name, form=variant.way, topic=topic, passes=passes
        )
        return answer | {"broker_cpu_seconds": round(cpu_seconds(process_id) - broker_cpu, 2)}

    def _replay(self, replayers: list[Child], value_bytes: int, topic: str, passes: int) -> dict[str, Any]:
        began = time.perf_counter()
        for child in replayers:
            child.tell("write", name=_name(value_bytes, words=False), topic=topic, passes=passes)
        answers = [child.answer() for child in replayers]
        cpu = round(sum(answer["cpu_seconds"] for answer in answers), 2)
        return {
            "seconds": round(time.perf_counter() - began, 4),
            "records": sum(answer["records"] for answer in answers),
            "cpu_seconds": cpu,
            "python_cpu_seconds": cpu,
        }

    @contextlib.contextmanager
    def _topic(self, embedded: bool) -> Iterator[str]:
        name = self._create(embedded)
        yield name
        # Gone before the next run: nothing of this one is left for the disk to write.
        self._delete(name, embedded)

    def _create(self, embedded: bool) -> str:
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        admin = self._admins[embedded]
        self._topics += 1
        name = f"bench-{self._topics}"
        new = NewTopic(name, num_partitions=self._partitions, replication_factor=1)
        admin.create_topics([new], operation_timeout=_ADMIN_TIMEOUT_S)[name].result(_ADMIN_TIMEOUT_S)
        # The controller has it; the broker that clients ask may learn of it later.
        deadline = time.monotonic() + _ADMIN_TIMEOUT_S
        while name not in admin.list_topics(timeout=_ADMIN_TIMEOUT_S).topics:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the broker does not know the new topic {name}")
            time.sleep(0.05)
        return name

    def _delete(self, name: str, embedded: bool) -> None:
        self._admins[embedded].delete_topics([name], operation_timeout=_ADMIN_TIMEOUT_S)[name].result(_ADMIN_TIMEOUT_S)


def _name(value_bytes: int, *, words: bool) -> str:
    return f"{value_bytes}{' of words' if words else ''}"
