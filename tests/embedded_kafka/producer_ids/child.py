"""A process that draws ids from a ZooKeeper until its standard input ends.

    python -m tests.embedded_kafka.producer_ids.child <hosts> <broker id> <block size>

It says, a line each: `claimed <start> <end>` and `failed <unknown or unreachable>` as they happen, and at the end
`drawn <first> <last>` for every run of ids that were handed out.
"""

from __future__ import annotations

import os
import sys
import threading

from embedded_kafka.producer_ids.allocator import ProducerIds
from embedded_kafka.producer_ids.block import Block
from embedded_kafka.producer_ids.zookeeper import ZooKeeperBlocks
from kafka_core.errors import BlocksUnavailable
from tests.embedded_kafka.producer_ids.history import runs_of


class Witnessed:
    """Says what the store answers before anybody else learns of it."""

    def __init__(self, store: ZooKeeperBlocks) -> None:
        self._store = store

    def claim(self) -> Block:
        """As the store."""
        try:
            block = self._store.claim()
        except BlocksUnavailable as error:
            say(f"failed {error.facts.get('outcome', 'unreachable')}")
            raise
        say(f"claimed {block.start} {block.end}")
        return block

    def close(self) -> None:
        """As the store."""
        self._store.close()


def say(line: str) -> None:
    """Whole, whichever thread says it: less than a pipe's PIPE_BUF."""
    os.write(1, line.encode() + b"\n")


def main(hosts: str, broker_id: str, block_size: str) -> None:
    """Draws, then tells."""
    ids = ProducerIds(Witnessed(ZooKeeperBlocks(hosts, int(broker_id), block_size=int(block_size))))
    ids.start()
    over = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=listen, daemon=True).start()
    drawn: list[int] = []
    while not over.is_set():
        try:
            drawn.append(ids.next_id())
        except BlocksUnavailable:
            ids.wait_until_ready(100)
    ids.close()
    for first, last in runs_of(drawn):
        say(f"drawn {first} {last}")


if __name__ == "__main__":
    main(*sys.argv[1:])
