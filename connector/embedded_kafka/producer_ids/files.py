"""Blocks of producer ids for a broker without ZooKeeper: the latest one is kept in a file.

Owns: the file.
Does not know: other brokers; the lock on the data directory keeps them out.
Invariants:
- A block is on the disk before any of its ids is handed out.
- The file is complete at every moment, so no id is repeated after SIGKILL or a loss of power.
"""

from __future__ import annotations

import os
from pathlib import Path

from embedded_kafka.producer_ids.block import BLOCK_SIZE, Block, encode, later, next_block, parse
from kafka_core.errors import BlocksUnavailable

FILE_NAME = "latest_producer_id_block"


class FileBlocks:
    """Claims blocks in `directory`/latest_producer_id_block, in the JSON that Kafka keeps in ZooKeeper."""

    def __init__(self, directory: Path, broker_id: int = 0, *, block_size: int = BLOCK_SIZE) -> None:
        next_block(None, block_size)  # ValueError now, instead of a failure at the first claim
        self._directory = directory
        self._path = directory / FILE_NAME
        self._broker_id = broker_id
        self._block_size = block_size
        self._last: Block | None = None

    def claim(self) -> Block:
        """The next block, once it is on the disk.

        Raises GarbledBlock, and leaves the file unchanged, when its content is malformed; BlocksUnavailable
        when the disk refuses.
        """
        try:
            # `_last`: if the file is removed under a running broker, its ids must not begin again.
            block = next_block(later(self._read(), self._last), self._block_size)
            self._replace(encode(block, self._broker_id))
        except OSError as error:
            # The file is the old one or the new one. If it is the new one, the next claim continues behind
            # it: this block is then lost but not in use, which is harmless.
            raise BlocksUnavailable(
                f"the file of the latest block of producer ids cannot be read or written ({error}); "
                "no id was handed out; free disk space or fix the permissions; the broker retries",
                {"path": str(self._path)},
            ) from error
        self._last = block
        return block

    def close(self) -> None:
        """Nothing is held between claims."""

    def _read(self) -> Block | None:
        try:
            with self._path.open("rb") as file:
                # Bounded: parse() refuses what is longer than a block's JSON.
                data = file.read(1 << 16)
        except FileNotFoundError:
            return None
        return parse(data, str(self._path))

    def _replace(self, data: bytes) -> None:
        temporary = self._path.with_suffix(".tmp")
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)
        # Without it the rename itself may be undone by a loss of power.
        directory = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
