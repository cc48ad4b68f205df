"""The embedded broker, started and stopped from Python: in a child process, or in a thread of this one.

Owns: the broker's start and end, and the caller's end of its control socket.
Does not know: the protocol; a program connects to the broker with any Kafka client.
Invariants:
- A broker in a child process cannot outlive the process that started it.
- `stop` leaves nothing behind but the data directory that was named.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from embedded_kafka.child import start_error
from embedded_kafka.child.processes import Child, spawn
from embedded_kafka.child.server import ChildServer, first_answer
from embedded_kafka.faults import last_counts
from embedded_kafka.private import make_private
from embedded_kafka.real.zookeeper import LocalZooKeeper
from embedded_kafka.security.prepared import Keys, Security
from kafka_core.errors import BrokerUnavailable, OptionsError

_READY_WITHIN_MS = 60_000
"""A start takes a third of a second; on a machine that is busy with other tests many times that."""
_LOOK_AGAIN_AFTER_S = 0.01
_ANSWERS_WITHIN_S = 30.0
_COUNTS_WITHIN_S = 2.0
"""For the faults' counts before a broker's end. One that does not answer is to be ended all the same."""
_EXIT_WITHIN_MS = 500
"""Between a process's end, which closes its sockets, and its exit code lie milliseconds."""
_NEVER_STARTED = "the embedded broker was never started"
_LOG_TAIL_CHARS = 4000

_CALLS = {
    "wire": "fault", "answer": "fault_in_answer", "step": "fault_at_step", "marker": "fault_at_marker", "leader": "fault_at_leader",
}  # fmt: skip
"""Where a fault is set -> the method that sets it there."""


class EmbeddedKafka(ChildServer):
    """A single-node Kafka broker on 127.0.0.1 that needs no Java. The end of the `with` block stops it.

    data_dir: where its data is kept after `stop`; None = a directory that `stop` removes.
    port: 0 takes a free one; a restarted broker keeps its port.
    zookeeper: producer ids come from this ensemble ("host:port,..."); True starts a real ZooKeeper (which needs a
        Java); None keeps them in the data directory.
    in_process: run in a thread instead of a child process: starts faster; cannot be killed.
    config: settings under Kafka's names. `start` refuses one that cannot work with OptionsError.
    security: how clients log in: a protocol ("SASL_SSL"), or a `Security` with its mechanisms and users. Users and
        certificates are made by `start`, and `client_settings` has what a client needs. None = PLAINTEXT.
    """

    def __init__(
        self,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        port: int = 0,
        zookeeper: str | bool | None = None,
        in_process: bool = False,
        config: Mapping[str, str] | None = None,
        security: Security | str | None = None,
    ) -> None:
        super().__init__("embedded-kafka", data_dir)
        self._port = port
        self._zookeeper = zookeeper
        self._own_zookeeper: LocalZooKeeper | None = None
        self._in_process = in_process
        self._config = dict(config or {})
        if not isinstance(security, Security | str | None):
            raise OptionsError(f"security must be a protocol, a Security or None, not {security!r}")
        self._security = Security(security) if isinstance(security, str) else security
        self._keys: Keys | None = None
        self._child: Child | None = None
        self._thread: _Thread | None = None
        self._control: Path | None = None
        self._started = False
        self._handles: list[FaultHandle] = []

    @property
    def bootstrap_servers(self) -> str:
        """`127.0.0.1:port`, for a client's configuration; the same after a restart. BrokerUnavailable before the first
        start.
        """
        if not self._started:
            raise BrokerUnavailable(_NEVER_STARTED)
        return f"127.0.0.1:{self._port}"

    def client_settings(self, user: str | None = None, mechanism: str | None = None) -> dict[str, str]:
        """The settings with which a user logs in, `bootstrap.servers` among them: librdkafka's names, and this
        package's with `kafka.` before them. user: None = the first; mechanism: None = the first. OptionsError for what
        the broker does not have, BrokerUnavailable before the first start.
        """
        servers = self.bootstrap_servers
        if self._keys is None and (user, mechanism) != (None, None):
            raise OptionsError(
                "the embedded broker has no logins, because it was made without security: client_settings() takes no user and no mechanism",
                {"user": user, "mechanism": mechanism},
            )
        login = {} if self._keys is None else self._keys.client_settings(user, mechanism)
        return {"bootstrap.servers": servers, **login}

    @property
    def data_dir(self) -> Path:
        """The directory of this broker's data."""
        if self._dir is None:
            raise BrokerUnavailable(_NEVER_STARTED)
        return self._dir

    @property
    def log_path(self) -> Path:
        """The log file of a broker in a child process."""
        return self.data_dir / "broker.log"

    @property
    def pid(self) -> int:
        """The child's process id, for measurements; stop the broker by `stop` or `kill` only."""
        if self._child is None:
            raise BrokerUnavailable("the embedded broker does not run in a process of its own")
        return self._child.pid

    def start(self) -> EmbeddedKafka:
        """Start and wait until the broker answers. After a failure nothing is left running, and the error gives the
        reason, the same one from a child process as from a thread: OptionsError for a setting, StorageInUse for a data
        directory or a port of another process. BrokerUnavailable, with the end of the log, where a child gives none.
        """
        try:
            directory = self._make_dir()
            make_private(directory)
            if self._security is not None:
                self._keys = Keys(self._security, directory / "security")
            if self._zookeeper is True:
                self._own_zookeeper = LocalZooKeeper(data_dir=directory / "zookeeper").start()
            self._run()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop cleanly, and remove the data unless `data_dir` was given."""
        self._end(kill=False)
        if self._own_zookeeper is not None:
            self._own_zookeeper.stop()
            self._own_zookeeper = None
        self._remove_dir()

    def kill(self) -> None:
        """SIGKILL to a broker in a child process; `restart` brings it back on the same port and data."""
        if self._in_process:
            raise OptionsError("a broker in a thread cannot be killed; leave out in_process")
        self._end(kill=True)

    def restart(self, config: Mapping[str, str] | None = None) -> None:
        """Stop the broker if it runs, and start it again on the same port and data. `config`: settings to
        change. OptionsError for one that cannot work; the broker then runs on as it was."""
        directory, before, after = self.data_dir, self._config, {**self._config, **(config or {})}
        if config:
            # Not at the top: a program whose broker is a child process seldom needs this, and it loads the broker.
            from embedded_kafka.serving import judge

            judge(directory, self._settings(after))
        self._end(kill=False)
        try:
            self._config = after
            self._run()
        except BaseException:
            self._config = before
            self._end(kill=False)
            raise

    # ---- faults, time and rights

    def fault(
        self, api: str, action: str, *, times: int = 1, skip: int = 0, delay_ms: int = 0,
        code: str = "UNKNOWN_SERVER_ERROR", after_bytes: int = 0, client_id: str | None = None,
        transactional_id: str | None = None, topic: str | None = None, partition: int | None = None,
    ) -> FaultHandle:  # fmt: skip
        """Inject a fault into requests of an API ("Produce"; "*" for all).

        action: "delay" (by `delay_ms`), "drop-request" (not executed, disconnected), "drop-answer" (executed,
        disconnected), "error" (not executed, answered with `code`, Kafka's name of an error), "cut"
        (executed, disconnected after `after_bytes` of the answer). `skip` lets that many pass first.
        `client_id`, `transactional_id`, `topic`, `partition`: only requests of that client, or that name
        these.
        """
        return self._inject("wire", locals())

    def fault_in_answer(
        self, api: str, action: str, *, topic: str | None = None, partition: int | None = None,
        times: int | None = None, skip: int = 0, client_id: str | None = None, batches: int = 1,
        delay_ms: int = 0, below: int | None = None, last_stable_offset: int | None = None,
        other_partition: int | None = None, code: str = "UNKNOWN_SERVER_ERROR",
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

    def elect_leader(self, topic: str, partition: int, *, lost_from: int | None = None) -> int:
        """Elect a new leader of the partition; returns its epoch. Answers to requests with the old epoch
        report the change.

        lost_from: an unclean election: the batch that has this offset and all later ones are gone, and other
        records may take their offsets. Not for the broker's internal topics.
        """
        asked = {"topic": topic, "partition": partition, "lost_from": lost_from}
        return int(self._command("elect", **asked))

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

    def exit_code(self, timeout_ms: int) -> int:
        """The child's exit code, e.g. after a fault that kills it; TimeoutError where it still runs after
        that time."""
        if self._child is None:
            raise BrokerUnavailable("the embedded broker does not run in a process of its own")
        return self._child.wait(timeout_ms)

    def _command(self, name: str, within_s: float = _ANSWERS_WITHIN_S, /, **asked: Any) -> Any:
        if self._control is None:
            raise BrokerUnavailable("the embedded broker is not running" if self._started else _NEVER_STARTED)
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

    def _why_silent(self, error: Exception) -> str:
        if self._child is not None:
            with contextlib.suppress(TimeoutError):
                code = self._child.wait(_EXIT_WITHIN_MS)
                return (
                    f"the embedded broker's process has ended with exit code {code}; its faults and denials ended with it; "
                    "restart() starts it again on the same port and data"
                )
        return f"the embedded broker does not answer: {type(error).__name__}: {error}"

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
            handle._end(counts)
        self._handles.clear()

    # ---- the broker's life

    def _settings(self, config: Mapping[str, str]) -> dict[str, str]:
        """What the broker is started with: those of its logins, whose files the newest start has made, and `config`."""
        return {**({} if self._keys is None else self._keys.broker_settings), **config}

    def _run(self) -> None:
        assert self._dir is not None
        zookeeper = self._own_zookeeper.hosts if self._own_zookeeper is not None else self._zookeeper
        assert not isinstance(zookeeper, bool)
        if self._in_process:
            self._thread = _Thread(self._dir, self._port, zookeeper, self._settings(self._config))
            ready = self._thread.start()
        else:
            ready = self._spawn(zookeeper)
        self._port = int(ready["bootstrap_servers"].rpartition(":")[2])
        self._control = Path(ready["control"])
        self._started = True

    def _spawn(self, zookeeper: str | None) -> dict[str, str]:
        log = self.log_path
        # Every start appends to the log; only the lines of this one count.
        begin = log.stat().st_size if log.exists() else 0
        command = [
            sys.executable, "-m", "embedded_kafka", "--json-errors",
            "--data-dir", str(self.data_dir), "--port", str(self._port),
            *(["--zookeeper", zookeeper] if zookeeper else []),
            *(word for name, value in self._settings(self._config).items() for word in ("--set", f"{name}={value}")),
        ]  # fmt: skip
        temporary = self.data_dir if self._given_dir is None else None
        self._child = spawn(command, log_path=log, temporary=temporary)

        def addresses() -> dict[str, str] | None:
            with log.open("rb") as file:
                file.seek(begin)
                for line in file.read().splitlines(keepends=True):
                    if line.startswith(b'{"bootstrap_servers"') and line.endswith(b"\n"):
                        return dict(json.loads(line))
            return None

        ready = first_answer(self._child, addresses, _READY_WITHIN_MS, _LOOK_AGAIN_AFTER_S)
        if ready is None:
            with log.open(errors="replace") as file:
                file.seek(begin)
                output = file.read()
            known = start_error.found_in(output)
            if known is not None:
                raise known
            tail = output[-_LOG_TAIL_CHARS:]
            raise BrokerUnavailable(f"the embedded broker did not start; the end of its log:\n{tail}")
        return ready

    def _end(self, *, kill: bool) -> None:
        if self._handles:
            self._faults_ended(self._counts())
        child, self._child = self._child, None
        thread, self._thread = self._thread, None
        self._control = None
        if child is not None:
            if kill:
                child.kill()
            else:
                child.stop()
        if thread is not None:
            thread.stop()


class FaultHandle:
    """A fault that was set."""

    def __init__(self, kafka: EmbeddedKafka, number: int) -> None:
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

    def _end(self, counts: Mapping[int, int]) -> None:
        self._over, self._last = True, counts.get(self._number)


def _by_number(counts: Mapping[str, int]) -> dict[int, int]:
    """JSON has strings alone for keys."""
    return {int(number): fired for number, fired in counts.items()}


class _Thread:
    """A broker on an event loop of its own in a thread of this process."""

    def __init__(self, directory: Path, port: int, zookeeper: str | None, config: Mapping[str, str]) -> None:
        self._arguments = (directory, port, zookeeper, config)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="embedded-kafka", daemon=True)
        self._stack = contextlib.AsyncExitStack()

    def start(self) -> dict[str, str]:
        self._thread.start()
        try:
            ready: dict[str, str] = self._do(self._start(*self._arguments))
            return ready
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        if self._thread.is_alive():
            self._do(self._stack.aclose())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    def _do(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _start(
        self, directory: Path, port: int, zookeeper: str | None, config: Mapping[str, str]
    ) -> dict[str, str]:
        # Not at the top: where the broker is a child process, the program that starts it need not load the broker as
        # well.
        from embedded_kafka.serving import serve

        ready: dict[str, str] = await self._stack.enter_async_context(serve(directory, port, zookeeper, config))
        return ready
