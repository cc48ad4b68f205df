"""Blocks of producer ids in ZooKeeper, in the node in which Kafka's own brokers claim theirs.

Owns: the session, and compare-and-set on the node.
Does not know: how the ids are handed out.
Invariants:
- A block is returned only after ZooKeeper's answer that exactly this write was applied.
- A write without an answer never counts as applied.
- A node that cannot be read is never written.
Sources: the idempotent producer's section 5.1.2; Kafka 3.9, ZkProducerIdManager.
"""

from __future__ import annotations

import contextlib
import logging

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, KazooException, NoAuthError, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.hosts import collect_hosts
from kazoo.protocol.states import KeeperState

from embedded_kafka.producer_ids.block import BLOCK_SIZE, Block, encode, later, next_block, parse
from kafka_core import runtime
from kafka_core.errors import AuthorizationFailed, BlocksUnavailable

log = logging.getLogger(__name__)

PATH = "/latest_producer_id_block"

# kazoo reports every attempt to connect, several a second while a server is down. The allocator logs it once.
_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.setLevel(logging.ERROR)

# How long a claim waits for a session. Connecting continues in the background, so half would only make more
# claims fail.
_CONNECTED_WITHIN_S = 1.0
# A reachable server answers in milliseconds; fsync on a busy disk takes a second now and then. Giving up on a
# write costs a block.
_ANSWERED_WITHIN_S = 5.0
# One claimer wins each round, so among n claimers one loses n rounds in a row only by bad luck.
_MAX_ROUNDS = 100
# A server that is back is noticed within this and its jitter.
_RECONNECT = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0}
# kazoo itself waits ten seconds and more for a connection to an address that does not answer.
_CLOSED_WITHIN_S = 2.0


class ZooKeeperBlocks:
    """Claims blocks in an ensemble that Kafka's brokers may share. `hosts` as in zookeeper.connect, with its chroot.

    Nothing is sent before the first claim. The session holds no ephemeral nodes, so losing it loses nothing.
    """

    def __init__(
        self,
        hosts: str,
        broker_id: int,
        *,
        path: str = PATH,
        block_size: int = BLOCK_SIZE,
        session_timeout_ms: int = 6_000,
    ) -> None:
        # ValueError now, instead of a failure at the first claim.
        collect_hosts(hosts)
        next_block(None, block_size)
        self._hosts = hosts
        self._broker_id = broker_id
        self._path = path
        self._block_size = block_size
        self._session_timeout_ms = session_timeout_ms
        self._last: Block | None = None
        self._lock = runtime.lock()
        self._client: KazooClient | None = None
        self._connected = runtime.event()
        self._closed = False

    def claim(self) -> Block:
        """The block behind the latest one, once ZooKeeper has confirmed that it belongs to this broker.

        GarbledBlock and ProducerIdsExhausted leave the node unchanged. BlocksUnavailable: not connected, or
        the answer to the write is missing; the block is then abandoned.
        """
        for _ in range(_MAX_ROUNDS):
            client = self._session()
            latest, version = self._read(client)
            if self._last is not None and (latest is None or latest.end < self._last.end):
                # Either an old copy of the node was read, and the write below will lose; or the node was
                # removed or restored, and continuing from there would hand out this broker's ids again.
                log.warning("%s is behind the block %s that was claimed here: %s", self._path, self._last, latest)
            block = next_block(later(latest, self._last), self._block_size)
            if self._write(client, block, version):
                log.info("claimed the producer ids %d to %d", block.start, block.end)
                self._last = block
                return block
        raise BlocksUnavailable(
            "other brokers were faster in every attempt to claim a block of producer ids; the broker retries",
            {"rounds": _MAX_ROUNDS},
        )

    def close(self) -> None:
        """Ends the session and a running claim; returns within seconds even when the network is stuck."""
        with self._lock:
            self._closed = True
            client, self._client = self._client, None
        if client is not None:
            _dispose(client)

    def _session(self) -> KazooClient:
        with self._lock:
            if self._closed:
                raise BlocksUnavailable("the session with ZooKeeper was closed")
            if self._client is None:
                self._client, self._connected = self._start()
            client = self._client
        if self._connected.wait(_CONNECTED_WITHIN_S):
            return client
        if client.client_state in (KeeperState.CLOSED, KeeperState.AUTH_FAILED):
            # kazoo reconnects indefinitely, except after an unexpected error: that ends its thread.
            with self._lock:
                if self._client is client:
                    self._client = None
            _dispose(client)
        raise BlocksUnavailable(
            "ZooKeeper does not answer; no producer id was handed out; the broker retries",
            {"hosts": self._hosts},
        )

    def _start(self) -> tuple[KazooClient, runtime.Event]:
        client = KazooClient(
            self._hosts,
            timeout=self._session_timeout_ms / 1000,
            connection_retry=_RECONNECT,
            logger=_kazoo_log,
        )
        try:
            return client, client.start_async()
        except OSError as error:
            _dispose(client)
            raise BlocksUnavailable(
                f"no session with ZooKeeper could be opened ({error}); the broker retries",
                {"hosts": self._hosts},
            ) from error

    def _read(self, client: KazooClient) -> tuple[Block | None, int | None]:
        """The latest block and the node's version; None and None where there is no node."""
        try:
            data, stat = client.get_async(self._path).get(timeout=_ANSWERED_WITHIN_S)
        except NoNodeError:
            return None, None
        except NoAuthError as error:
            raise self._forbidden("read") from error
        except (KazooException, KazooTimeoutError) as error:
            raise BlocksUnavailable(
                f"ZooKeeper did not return the latest block of producer ids ({error!r}); the broker retries",
                {"hosts": self._hosts},
            ) from error
        # Kafka's brokers create the node without data when they start; that is not the same as empty data.
        return None if data is None else parse(data, self._path), stat.version

    def _write(self, client: KazooClient, block: Block, version: int | None) -> bool:
        """Whether the node went from `version` (None: from not existing) to `block` by this write."""
        data = encode(block, self._broker_id)
        try:
            if version is None:
                client.create_async(self._path, data, makepath=True).get(timeout=_ANSWERED_WITHIN_S)
            else:
                client.set_async(self._path, data, version=version).get(timeout=_ANSWERED_WITHIN_S)
        except (BadVersionError, NodeExistsError, NoNodeError):
            # kazoo sends a request once, so this refusal is of this write, and it was not applied.
            return False
        except NoAuthError as error:
            raise self._forbidden("write") from error
        except (KazooException, KazooTimeoutError) as error:
            # Unknown outcome: applied or not, or applied later. Reading the node again and finding exactly
            # what was written (as Kafka did before 3.0) proves nothing where two processes run under one
            # broker id: both read version 7, both write the same bytes, one is applied, the other's answer is
            # lost, and both would take the block for theirs. So neither may use it. If it was not applied,
            # the next round may get the same numbers, by a write of its own that ZooKeeper confirms: both
            # writes expect the same version, so at most one of them is ever applied. There are 9.2e15 blocks
            # to lose.
            raise BlocksUnavailable(
                f"ZooKeeper did not confirm whether a block of producer ids was claimed ({error!r}); the "
                "block is abandoned and another one is tried",
                {"outcome": "unknown", "block_start": block.start, "block_end": block.end},
            ) from error
        return True

    def _forbidden(self, operation: str) -> AuthorizationFailed:
        return AuthorizationFailed(
            f"ZooKeeper's ACL forbids this broker to {operation} {self._path}; no producer id was handed "
            "out; grant that right and restart the broker",
            {"path": self._path, "operation": operation},
        )


def _dispose(client: KazooClient) -> None:
    def stop() -> None:
        # kazoo raises where its own threads, which are daemons, end slowly; nothing else is left to do.
        with contextlib.suppress(Exception):
            client.stop()
            client.close()

    thread = runtime.thread(stop, "producer-ids-close")
    thread.start()
    thread.join(_CLOSED_WITHIN_S)
