"""What a program asks of running brokers: faults, time, rights, and what happens to a broker of several.

Owns: the caller's end of the control socket, the faults' handles and their last counts.
Does not know: how the brokers run (`embedded`), what a command does (`serving.control`).
"""

from __future__ import annotations

import json
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from embedded_kafka.faults import last_counts
from kafka_core.errors import BrokerUnavailable, OptionsError

_ANSWERS_WITHIN_S = 30.0
_COUNTS_WITHIN_S = 2.0
"""For the faults' counts before a broker's end. One that does not answer is to be ended all the same."""

_CALLS = {
    "wire": "fault", "answer": "fault_in_answer", "step": "fault_at_step", "marker": "fault_at_marker", "leader": "fault_at_leader",
}  # fmt: skip
"""Where a fault is set -> the method that sets it there."""


class Remote(ABC):
    """The calls. `_control`: the socket, while the brokers run."""

    _in_process: bool
    _control: Path | None

    def __init__(self) -> None:
        self._handles: list[FaultHandle] = []

    @abstractmethod
    def _why_silent(self, error: Exception | None) -> str:
        """The words for brokers that do not answer; None: they do not run."""

    # ---- faults

    def fault(
        self, api: str, action: str, *, times: int = 1, skip: int = 0, delay_ms: int = 0,
        code: str = "UNKNOWN_SERVER_ERROR", after_bytes: int = 0, client_id: str | None = None,
        transactional_id: str | None = None, topic: str | None = None, partition: int | None = None,
        broker: int | None = None,
    ) -> FaultHandle:  # fmt: skip
        """Inject a fault into requests of an API ("Produce"; "*" for all).

        action: "delay" (by `delay_ms`), "drop-request" (not executed, disconnected), "drop-answer" (executed,
        disconnected), "error" (not executed, answered with `code`, Kafka's name of an error), "cut"
        (executed, disconnected after `after_bytes` of the answer). `skip` lets that many pass first.
        `client_id`, `transactional_id`, `topic`, `partition`: only requests of that client, or that name
        these. `broker`: only those at this one of several brokers.
        """
        return self._inject("wire", locals())

    def fault_in_answer(
        self, api: str, action: str, *, topic: str | None = None, partition: int | None = None,
        times: int | None = None, skip: int = 0, client_id: str | None = None, batches: int = 1,
        delay_ms: int = 0, below: int | None = None, last_stable_offset: int | None = None,
        other_partition: int | None = None, code: str = "UNKNOWN_SERVER_ERROR", broker: int | None = None,
    ) -> FaultHandle:  # fmt: skip
        """Execute requests of an API, but alter their answers. The handle counts the altered answers.

        Fetch: "empty" (a partition that has records is answered without them, and without an error), "fewer"
        (with `batches` of its batches), "torn" (`batches` of them and half of the next), "slow-store" (an
        offset before `below` is answered without records until `delay_ms` after its first request; always,
        unless `times` is given). `last_stable_offset` replaces the true one in these answers. Metadata:
        "leave-out-topic" (the topic is unknown). Fetch, Produce, Metadata, ListOffsets, OffsetForLeaderEpoch,
        OffsetCommit, TxnOffsetCommit: "leave-out" (the partition is not in the answer; the highest where none
        is named), "other-partition" (`other_partition`, or the next free number, is in the answer in its
        place), "error" (the partition is answered with `code`). Without `topic` or `partition`: everything in
        an answer.
        """
        if times is None:
            times = sys.maxsize if action == "slow-store" else 1
        return self._inject("answer", locals())

    def fault_at_step(self, step: str, action: str, *, times: int = 1, skip: int = 0, delay_ms: int = 0) -> FaultHandle:
        """Inject a fault when the transaction coordinator reaches a step: "init-logged", "add-logged", "end-prepared",
        "abort-prepared", "marker-written:1" (2, 3, ...), "end-completed"; "*" for all.

        Each comes directly after what it names is in the log, and before its consequences. "abort-prepared" is the
        broker's own abort (a timeout, or InitProducerId over an open transaction), "end-prepared" that of a client's
        EndTxn. The markers of a transaction are numbered from 1, in the order of topics and partitions.

        action: "stop" (until the handle is released), "delay" (by `delay_ms`), "kill" (SIGKILL to the broker's
        process).
        """
        if self._in_process and action == "kill":
            raise OptionsError("a broker in a thread cannot be killed; leave out in_process")
        return self._inject("step", locals())

    def fault_at_marker(
        self, topic: str, partition: int | None, action: str, *, times: int = 1, skip: int = 0, delay_ms: int = 0,
        transactional_id: str | None = None, commit: bool | None = None,
    ) -> FaultHandle:  # fmt: skip
        """Inject a fault into the transaction coordinator's marker for a partition (None: for each of the
        topic's).

        action: "forget" (never written; the transaction is complete nevertheless and hangs there), "late"
        (written after `delay_ms`, or with 0 after the release; the transaction is prepared until then). Other
        partitions' markers are written as usual. `commit`: only of commits, or only of aborts. An
        administrator's WriteTxnMarkers is not affected.
        """
        return self._inject("marker", locals())

    def fault_at_leader(
        self, topic: str, partition: int, action: str, *, end: int | None = None, times: int | None = None,
        skip: int = 0, client_id: str | None = None, api: str | None = None,
    ) -> FaultHandle:  # fmt: skip
        """Have another leader than the present one answer for a partition. The handle counts its answers.

        action: "stale-leader" (one that was cut off and replaced without noticing: it answers as the log was when
        it ended at offset `end`, under the epoch of its last record there; what was written since it does not have),
        "lagging-high-watermark" (a new one, elected by this call, which has all records and returns those before
        offset `end` only; "latest" is OFFSET_NOT_AVAILABLE, KIP-207). `end`: None is where the log ends now.
        Metadata, ListOffsets, Fetch, OffsetForLeaderEpoch and DescribeProducers are answered so, or `api` of
        them only; records are written as always. `times`: None for all answers until the release."""
        if times is None:
            times = sys.maxsize
        return self._inject("leader", locals())

    def _inject(self, place: str, asked: dict[str, Any]) -> FaultHandle:
        """`asked`: the arguments of one of the methods above, which have the names of `Fault`'s fields."""
        fault = {name: value for name, value in asked.items() if name != "self"}
        handle = FaultHandle(self, self._command("inject", fault={"place": place, **fault})["number"])
        self._handles.append(handle)
        return handle

    def clear_faults(self) -> None:
        """Remove all faults; stopped work continues. Their handles keep the counts."""
        self._faults_ended(_by_number(self._command("clear-faults")))

    def elect_leader(
        self, topic: str, partition: int, *, leader: int | None = None, lost_from: int | None = None
    ) -> int:
        """Elect a new leader of the partition; returns its epoch. Answers to requests with the old epoch
        report the change.

        leader: the broker that leads from now on; None: of several the next one in sync; -1: nobody, until the next
        call. lost_from: an unclean election: the batch that has this offset and all later ones are gone, and other
        records may take their offsets. Of an internal topic the coordinator loads what is left.
        """
        asked = {"topic": topic, "partition": partition, "lost_from": lost_from, "leader": leader}
        return int(self._command("elect", **asked))

    # ---- the brokers of a cluster

    def brokers(self) -> dict[int, str]:
        """Each broker's id and state: "up", "down", "frozen" or "cut off"."""
        return {int(node_id): state for node_id, state in self._command("brokers").items()}

    def leader_of(self, topic: str, partition: int) -> int:
        """The broker that leads the partition, -1 where nobody does. `__transaction_state` and `__consumer_offsets` are
        led by the coordinators of what they store."""
        return int(self._command("leader", topic=topic, partition=partition))

    def coordinator_of(self, *, transactional_id: str | None = None, group_id: str | None = None) -> int:
        """The broker that coordinates the id or the group, -1 where nobody does."""
        return int(self._command("coordinator", transactional_id=transactional_id, group_id=group_id))

    def move_coordinator(self, *, transactional_id: str | None = None, group_id: str | None = None) -> int:
        """Have another broker coordinate the id or the group, and what is stored beside it; returns the broker."""
        return int(self._command("move-coordinator", transactional_id=transactional_id, group_id=group_id))

    def move_leaders(self, topic: str | None = None, *, seed: int | None = None) -> int:
        """Elect a leader by chance for each partition of the topic (None: of all, coordinators too); returns how many
        have another one now. The same seed draws the same leaders from the same state."""
        return int(self._command("move-leaders", topic=topic, seed=seed))

    def set_in_sync(self, topic: str, partition: int, brokers: Sequence[int]) -> None:
        """Let only these replicas be in sync, the leader among them. With fewer than min.insync.replicas acks=all is
        refused with NOT_ENOUGH_REPLICAS."""
        self._command("in-sync", topic=topic, partition=partition, brokers=list(brokers))

    def kill_broker(self, broker: int) -> None:
        """End one broker of the cluster as by SIGKILL: its connections break, and others lead in its place as soon as
        it has been silent for broker.session.timeout.ms (here 0). What leads nowhere else has no leader."""
        self._command("kill-broker", broker=broker)

    def start_broker(
        self, broker: int, *, port: int | None = None, advertised: tuple[str, int] | None = None,
        api_versions: Mapping[str, int] | None = None,
    ) -> str:  # fmt: skip
        """Start a broker that is down; returns its address. port: None is the one that it had, 0 another free one.
        advertised: the host and port that clients are told instead, reachable or not. api_versions: the highest version
        that it has of some APIs ({"Produce": 9}), -1 for none: a broker of an older release.
        """
        asked = {"port": port, "advertised": advertised, "api_versions": dict(api_versions or {})}
        return str(self._command("start-broker", broker=broker, **asked))

    def freeze_broker(self, broker: int) -> None:
        """Stop one broker as by SIGSTOP: it accepts and keeps connections, and answers nothing."""
        self._command("freeze-broker", broker=broker)

    def thaw_broker(self, broker: int) -> None:
        """Let a frozen broker go on: it processes what has arrived, as the cluster is now."""
        self._command("thaw-broker", broker=broker)

    def cut_off_broker(self, broker: int) -> None:
        """Cut one broker off from the controller and the other brokers, not from its clients.

        Others lead in its place. It goes on answering: as a leader from the log as it was, as a coordinator from what
        it knew, Metadata and FindCoordinator as they were. It acknowledges nothing with acks=all (REQUEST_TIMED_OUT),
        and with less what will be lost.
        """
        self._command("cut-off-broker", broker=broker)

    def rejoin_broker(self, broker: int) -> None:
        """Let a broker that is cut off find the others again."""
        self._command("rejoin-broker", broker=broker)

    # ---- time and rights

    def advance(self, by_ms: int) -> None:
        """Advance the broker's clock, across restarts too. When this returns, all work that became due has
        begun."""
        self._command("advance", by_ms=by_ms)

    def deny(self, operation: str, resource: str, name: str = "*") -> None:
        """Refuse an operation ("WRITE") on resources of a type ("TOPIC", "GROUP", "TRANSACTIONAL_ID", "CLUSTER")."""
        self._command("deny", operation=operation, resource=resource, name=name)

    def allow_all(self) -> None:
        """Remove every denial."""
        self._command("allow-all")

    # ---- inside

    def _command(self, name: str, within_s: float = _ANSWERS_WITHIN_S, /, **asked: Any) -> Any:
        if self._control is None:
            raise BrokerUnavailable(self._why_silent(None))
        call = _CALLS[asked["fault"]["place"]] if name == "inject" else name
        try:
            line = json.dumps({"do": name, **asked}).encode()
        except TypeError as error:
            raise OptionsError(f"the embedded broker cannot be asked for {call}: {error}") from None
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(within_s)
                connection.connect(str(self._control))
                connection.sendall(line + b"\n")
                with connection.makefile("rb") as answers:
                    answer = json.loads(answers.readline())
        except (OSError, ValueError) as error:  # ValueError: it ended in the middle of its answer
            raise BrokerUnavailable(self._why_silent(error)) from error
        if "error" in answer:
            raise OptionsError(f"the embedded broker refused {call}: {answer['error']}")
        return answer["ok"]

    def _counts(self) -> dict[int, int]:
        """The number of each fault -> how often it has fired, also where one of them has killed the broker."""
        try:
            return _by_number(self._command("faults", _COUNTS_WITHIN_S))
        except BrokerUnavailable:
            return self._left_counts()

    def _left_counts(self) -> dict[int, int]:
        return {} if self._control is None else last_counts.read(self._control)

    def _faults_ended(self, counts: Mapping[int, int]) -> None:
        for handle in self._handles:
            handle._over_with(counts)
        self._handles.clear()


class FaultHandle:
    """A fault that was set."""

    def __init__(self, kafka: Remote, number: int) -> None:
        self._kafka = kafka
        self._number = number
        self._over = False
        self._last: int | None = None

    @property
    def fired(self) -> int:
        """How often it has fired. After `clear_faults`, and after the broker's end by a fault, `kill`, `restart` or
        `stop`: how often it had fired until then. BrokerUnavailable where the process was ended from outside, because
        its counts ended with it.
        """
        if not self._over:
            try:
                return int(self._kafka._command("fault", number=self._number)["fired"])
            except BrokerUnavailable:
                left = self._kafka._left_counts().get(self._number)
                if left is None:
                    raise
                return left
        if self._last is None:
            raise BrokerUnavailable(
                "how often this fault fired is not known: the broker's process was ended from outside, and faults and their counts end with it"
            )
        return self._last

    def release(self) -> None:
        """Continue the work that the fault stopped, and fire no more. Does nothing where the fault has ended."""
        if not self._over:
            self._kafka._command("release", number=self._number)

    def _over_with(self, counts: Mapping[int, int]) -> None:
        self._over, self._last = True, counts.get(self._number)


def _by_number(counts: Mapping[str, int]) -> dict[int, int]:
    """JSON has strings alone for keys."""
    return {int(number): fired for number, fired in counts.items()}
