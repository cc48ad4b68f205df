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
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from embedded_kafka.child import start_error
from embedded_kafka.child.ports import BROKERS_AT_MOST, ports_from
from embedded_kafka.child.processes import Child, spawn
from embedded_kafka.child.server import ChildServer, first_answer
from embedded_kafka.private import make_private
from embedded_kafka.real.zookeeper import LocalZooKeeper
from embedded_kafka.remote import Remote
from embedded_kafka.security.prepared import Keys, Security
from kafka_core.errors import BrokerUnavailable, OptionsError

_READY_WITHIN_MS = 60_000
"""A start takes a third of a second; on a machine that is busy with other tests many times that."""
_LOOK_AGAIN_AFTER_S = 0.01
_EXIT_WITHIN_MS = 500
"""Between a process's end, which closes its sockets, and its exit code lie milliseconds."""
_NEVER_STARTED = "the embedded broker was never started"
_LOG_TAIL_CHARS = 4000


class EmbeddedKafka(ChildServer, Remote):
    """A Kafka broker on 127.0.0.1, or several, without Java. The end of the `with` block stops them.

    data_dir: where its data is kept after `stop`; None = a directory that `stop` removes.
    brokers: how many. They run in one process, over one set of logs, and each leads a part of the partitions.
    port: 0 takes a free one; a restarted broker keeps its port. Of several brokers the next ones have the next ports.
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
        brokers: int = 1,
        port: int = 0,
        zookeeper: str | bool | None = None,
        in_process: bool = False,
        config: Mapping[str, str] | None = None,
        security: Security | str | None = None,
    ) -> None:
        super().__init__("embedded-kafka", data_dir)
        Remote.__init__(self)
        if type(brokers) is not int or not 1 <= brokers <= BROKERS_AT_MOST:
            raise OptionsError(f"brokers must be 1 to {BROKERS_AT_MOST}, not {brokers!r}")
        self._ports = ports_from(port, brokers)
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

    @property
    def bootstrap_servers(self) -> str:
        """`127.0.0.1:port`, of several brokers with commas between them, for a client's configuration; the same after a
        restart. BrokerUnavailable before the first start.
        """
        if not self._started:
            raise BrokerUnavailable(_NEVER_STARTED)
        return ",".join(f"127.0.0.1:{port}" for port in self._ports)

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

    def start_broker(
        self, broker: int, *, port: int | None = None, advertised: tuple[str, int] | None = None,
        api_versions: Mapping[str, int] | None = None,
    ) -> str:  # fmt: skip
        """See `Remote.start_broker`; `bootstrap_servers` has the new address from then on."""
        address = super().start_broker(broker, port=port, advertised=advertised, api_versions=api_versions)
        self._ports[list(self.brokers()).index(broker)] = int(address.rpartition(":")[2])
        return address

    def exit_code(self, timeout_ms: int) -> int:
        """The child's exit code, e.g. after a fault that kills it; TimeoutError where it still runs after
        that time."""
        if self._child is None:
            raise BrokerUnavailable("the embedded broker does not run in a process of its own")
        return self._child.wait(timeout_ms)

    def _why_silent(self, error: Exception | None) -> str:
        if error is None:
            return "the embedded broker is not running" if self._started else _NEVER_STARTED
        if self._child is not None:
            with contextlib.suppress(TimeoutError):
                code = self._child.wait(_EXIT_WITHIN_MS)
                return (
                    f"the embedded broker's process has ended with exit code {code}; its faults and denials ended with it; "
                    "restart() starts it again on the same port and data"
                )
        return f"the embedded broker does not answer: {type(error).__name__}: {error}"

    # ---- the broker's life

    def _settings(self, config: Mapping[str, str]) -> dict[str, str]:
        """What the broker is started with: those of its logins, whose files the newest start has made, and `config`."""
        return {**({} if self._keys is None else self._keys.broker_settings), **config}

    def _run(self) -> None:
        assert self._dir is not None
        zookeeper = self._own_zookeeper.hosts if self._own_zookeeper is not None else self._zookeeper
        assert not isinstance(zookeeper, bool)
        if self._in_process:
            self._thread = _Thread(self._dir, self._ports, zookeeper, self._settings(self._config))
            ready = self._thread.start()
        else:
            ready = self._spawn(zookeeper)
        self._ports = [int(each.rpartition(":")[2]) for each in ready["bootstrap_servers"].split(",")]
        self._control = Path(ready["control"])
        self._started = True

    def _spawn(self, zookeeper: str | None) -> dict[str, str]:
        log = self.log_path
        # Every start appends to the log; only the lines of this one count.
        begin = log.stat().st_size if log.exists() else 0
        command = [
            sys.executable, "-m", "embedded_kafka", "--json-errors",
            "--data-dir", str(self.data_dir), "--port", ",".join(map(str, self._ports)),
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


class _Thread:
    """A broker on an event loop of its own in a thread of this process."""

    def __init__(self, directory: Path, ports: Sequence[int], zookeeper: str | None, config: Mapping[str, str]) -> None:
        self._arguments = (directory, ports, zookeeper, config)
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
        self, directory: Path, ports: Sequence[int], zookeeper: str | None, config: Mapping[str, str]
    ) -> dict[str, str]:
        # Not at the top: where the broker is a child process, the program that starts it need not load the broker as
        # well.
        from embedded_kafka.serving import serve

        ready: dict[str, str] = await self._stack.enter_async_context(serve(directory, ports, zookeeper, config))
        return ready
