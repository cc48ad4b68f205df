"""Plays hostile answers to the client and judges what it does: in time, within its memory, with an error of its own.

Case n of a seed is always the same answer to the same request. What the client's threads do meanwhile is not repeated
to the millisecond.
"""

from __future__ import annotations

import faulthandler
import functools
import logging
import random
import socket
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka_core.errors import ExactlyOnceError, InternalError
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.client.net import known
from pyspark_kafka_eos.client.reading.absence import WITNESS_MS
from pyspark_kafka_eos.model import Secret
from tests.pyspark_kafka_eos.client.certificates import Authority
from tests.pyspark_kafka_eos.client.hostile import mutations
from tests.pyspark_kafka_eos.client.hostile.operations import LIMIT_MS, OPERATIONS, Impatient, settings
from tests.pyspark_kafka_eos.client.hostile.peer import MECHANISMS, Peer, Plan, settle
from tests.pyspark_kafka_eos.client.hostile.recording import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Conversation,
    name_of,
)
from tests.pyspark_kafka_eos.client.test_login import serving
from tests.support.memory import forget_peak, peak_bytes, resident_bytes

AT_MOST_S = 15.0
"""The longest operation here gives up after some five limits of 1.2 s; a busy machine needs some more."""

_WITNESS_S = WITNESS_MS / 1000
"""How much longer where every answer is changed: while a broker goes on saying that a topic is gone, or another one,
the client looks for one that can know.
"""

GROWS_AT_MOST_MB = 96
"""What one answer may take beside its frame: much less than the 128 MB that a batch may unpack to is used where none is
packed.
"""

UNPACKS_AT_MOST_MB = 420
"""The same for packed batches: 128 MB unpacked, once more while the buffer grows, and their columns."""

_WATCHED = ("asyncio", "pyspark_kafka_eos.client.net")
"""Loggers that write what a coroutine or a callback was ended by."""


@dataclass
class Told:
    """What came of all cases."""

    cases: int = 0
    delivered: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    by_change: dict[str, Counter[str]] = field(default_factory=dict)
    doors: Counter[str] = field(default_factory=Counter)
    defects: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    grew_mb: float = 0.0
    lost_clusters: int = 0


@dataclass(frozen=True)
class Door:
    """One way in."""

    name: str
    peer: Peer
    security: tuple[tuple[str, Any], ...]


class _Watch(logging.Handler):
    """Notes what ended a coroutine or a callback."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.found.append("".join(traceback.format_exception(record.exc_info[1]))[-3500:])


@contextmanager
def doors() -> Iterator[list[Door]]:
    """Peers without and with TLS, without and with a login; nothing leaves this machine meanwhile."""
    conversation = Conversation.load()
    mutations.prepare()
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder) / "own")
        context = serving(authority.issue("server"))
        trust = {"security_protocol": "SSL", "ssl_cafile": str(authority.file), "ssl_check_hostname": True}
        made = [
            Peer(conversation, tls=None, login=False), Peer(conversation, tls=context, login=False),
            Peer(conversation, tls=None, login=True), Peer(conversation, tls=context, login=True),
        ]  # fmt: skip
        found = [Door("PLAINTEXT", made[0], ()), Door("SSL", made[1], tuple(trust.items()))]
        for mechanism in MECHANISMS:
            login = {
                "sasl_mechanism": mechanism, "sasl_plain_username": "alice",
                "sasl_plain_password": Secret("wonderland"),
            }  # fmt: skip
            plain = {"security_protocol": "SASL_PLAINTEXT", **login}
            safe = {**trust, "security_protocol": "SASL_SSL", **login}
            found.append(Door(f"SASL_PLAINTEXT {mechanism}", made[2], tuple(plain.items())))
            found.append(Door(f"SASL_SSL {mechanism}", made[3], tuple(safe.items())))
        with _loopback_only(), _soon():
            try:
                yield found
            finally:
                for peer in made:
                    peer.close()


@contextmanager
def _loopback_only() -> Iterator[None]:
    # A changed answer may name any host.
    real = socket.getaddrinfo

    def looked_up(host: Any, *arguments: Any, **options: Any) -> Any:
        if host not in ("127.0.0.1", "localhost", b"127.0.0.1"):
            raise socket.gaierror(socket.EAI_NONAME, "only loopback in this test")
        return real(host, *arguments, **options)

    socket.getaddrinfo = looked_up  # type: ignore[assignment]
    try:
        yield
    finally:
        socket.getaddrinfo = real


@contextmanager
def _soon() -> Iterator[None]:
    """The pause before the next connection, 50 ms, is 1 ms."""
    before = known.BACKOFF_S
    known.BACKOFF_S = 0.001
    try:
        yield
    finally:
        known.BACKOFF_S = before


class Player:
    """Plays cases, one after another."""

    def __init__(self, found: list[Door], seed: int) -> None:
        self.doors, self.seed = found, seed
        self.told = Told()
        self._clusters: dict[str, Cluster] = {}
        self._right: dict[str, object] = {}
        self._watch = _Watch()

    def __enter__(self) -> Player:
        for name in _WATCHED:
            logging.getLogger(name).addHandler(self._watch)
        return self

    def __exit__(self, *_: object) -> None:
        for name in _WATCHED:
            logging.getLogger(name).removeHandler(self._watch)
        for cluster in self._clusters.values():
            cluster.close()

    def play(self, number: int) -> str:
        """Case `number`; returns its outcome."""
        chance = random.Random(f"{self.seed}/{number}")
        door = chance.choice(self.doors)
        opening = chance.random() < 0.4
        plan, what = self._opening(chance, door) if opening else self._asking(chance, door)
        cluster = None if opening else self._cluster(door)
        told = self.told
        settle(door.peer, plan)
        forget_peak()
        before, began = resident_bytes(), time.monotonic()
        outcome, error = self._carried_out(door, plan, cluster)
        took = time.monotonic() - began
        grew = (peak_bytes() - before) / (1 << 20)
        settle(door.peer, None)
        told.cases += 1
        told.delivered += plan.delivered > 0
        told.outcomes[outcome] += 1
        told.by_change.setdefault(what, Counter())[outcome] += 1
        told.doors[door.name] += 1
        told.slowest_s, told.grew_mb = max(told.slowest_s, took), max(told.grew_mb, grew)
        limit = UNPACKS_AT_MOST_MB if what.startswith("records") else GROWS_AT_MOST_MB
        about = f"case {number} of seed {self.seed}: {door.name}, {plan.operation}, {name_of(plan.api)}, {what}"
        if outcome in ("hang", "foreign error", "a bug's error"):
            told.defects.append(f"{about}: {outcome}\n{error}")
        if grew > limit:
            told.defects.append(f"{about}: memory grew by {grew:.0f} MB")
        for each in self._watch.found:
            told.defects.append(f"{about}: ended a coroutine or a callback\n{each}")
        self._watch.found.clear()
        if cluster is not None and not self._usable(door, cluster):
            told.lost_clusters += 1
        return outcome

    # ---- what is played

    def _opening(self, chance: random.Random, door: Door) -> tuple[Plan, str]:
        if door.name.startswith("S") and "SSL" in door.name and chance.random() < 0.2:
            raw = random.Random(chance.random())
            plan = Plan("open", -1, chance.randrange(3), _never, raw=lambda data: mutations.torn_tls(raw, data))
            return plan, "torn_tls"
        apis = dict(door.peer.conversation.apis("open"))
        if door.peer.login:
            # Two connections are opened, each with a login.
            apis |= {SASL_HANDSHAKE: 2, SASL_AUTHENTICATE: 4 if "SCRAM" in door.name else 2}
        return self._planned(chance, "open", apis)

    def _asking(self, chance: random.Random, door: Door) -> tuple[Plan, str]:
        operation = chance.choice(tuple(OPERATIONS))
        return self._planned(chance, operation, door.peer.conversation.apis(operation))

    def _planned(self, chance: random.Random, operation: str, apis: dict[int, int]) -> tuple[Plan, str]:
        api = chance.choice(tuple(apis))
        mutation = mutations.drawn(chance, api)
        always = chance.random() < 0.01
        drawn = random.Random(chance.random())
        plan = Plan(
            operation, api, chance.randrange(apis[api]),
            lambda frame, api, version: mutation(drawn, frame, api, version), always=always,
        )  # fmt: skip
        return plan, mutation.__name__ + (", always" if always else "")

    # ---- playing

    def _carried_out(self, door: Door, plan: Plan, cluster: Cluster | None) -> tuple[str, str]:
        found: list[object] = []
        failed: list[BaseException] = []

        def run() -> None:
            try:
                if cluster is None:
                    made = Impatient(self._settings(door), LIMIT_MS)
                    found.append("open")
                    made.close()
                else:
                    found.append(OPERATIONS[plan.operation](cluster))
            except BaseException as error:  # noqa: BLE001 -- every error is judged
                failed.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(AT_MOST_S + (_WITNESS_S if plan.always else 0))
        if thread.is_alive():
            with tempfile.TemporaryFile("w+") as stacks:
                faulthandler.dump_traceback(stacks, all_threads=True)
                stacks.seek(0)
                return "hang", stacks.read()[-4000:]
        if not failed:
            right = "open" if cluster is None else self._right[plan.operation]
            return ("right" if found[0] == right else "another value"), ""
        (error,) = failed
        told = "".join(traceback.format_exception(error))[-3000:]
        if isinstance(error, InternalError):
            return "a bug's error", told
        if isinstance(error, ExactlyOnceError):
            return type(error).__name__, told
        return "foreign error", told

    def _settings(self, door: Door) -> Any:
        return settings(door.peer.address, **dict(door.security))

    def _cluster(self, door: Door) -> Cluster:
        known = self._clusters.get(door.name)
        if known is None:
            settle(door.peer, None)
            known = self._clusters[door.name] = _patiently(lambda: Impatient(self._settings(door), 20_000))
        if not self._right:
            for name, operation in OPERATIONS.items():
                settle(door.peer, Plan(name, -2, 0, _never))
                self._right[name] = _patiently(functools.partial(operation, known))
        return known

    def _usable(self, door: Door, cluster: Cluster) -> bool:
        """Whether true answers have their effect again. A cluster whose brokers were replaced by the lie stays lost and
        is closed.
        """
        settle(door.peer, Plan("cluster id", -2, 0, _never))
        try:
            usable = OPERATIONS["cluster id"](cluster) == self._right["cluster id"]
        except ExactlyOnceError:
            usable = False
        if not usable:
            self._clusters.pop(door.name).close()
        return usable


def _patiently(action: Callable[[], Any]) -> Any:
    """The result of true answers. The limits here are short for a busy machine, and for what is loaded at its first
    use.
    """
    for _ in range(50):
        with suppress(ExactlyOnceError):
            return action()
    return action()


def _never(frame: bytes, api: int, version: int) -> Any:
    raise AssertionError("no answer of this plan is changed")


def table(told: Told) -> str:
    """The counts, as text."""
    outcomes = [name for name, _ in told.outcomes.most_common()]
    lines = [f"{told.cases} answers, {told.delivered} of them reached the client; slowest {told.slowest_s:.1f} s; "
             f"memory grew by at most {told.grew_mb:.0f} MB; {told.lost_clusters} clusters were closed after it; "
             f"{len(told.defects)} defects", ""]  # fmt: skip
    lines.append("| outcome | cases |")
    lines.append("|---|---:|")
    lines += [f"| {name} | {told.outcomes[name]} |" for name in outcomes]
    lines += ["", "| change | " + " | ".join(outcomes) + " |", "|---|" + "---:|" * len(outcomes)]
    for change, counts in sorted(told.by_change.items()):
        lines.append(f"| {change} | " + " | ".join(str(counts[name] or "") for name in outcomes) + " |")
    lines += ["", "| way in | cases |", "|---|---:|"]
    lines += [f"| {name} | {count} |" for name, count in sorted(told.doors.items())]
    return "\n".join(lines)
