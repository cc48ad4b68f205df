"""Blocks in a file: nothing is handed out twice, whenever the process dies."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from embedded_kafka.producer_ids.block import MAX_PRODUCER_ID, Block, encode, parse
from embedded_kafka.producer_ids.files import FILE_NAME, FileBlocks
from kafka_core.errors import BlocksUnavailable, GarbledBlock, ProducerIdsExhausted

# Says each id after it was handed out, until it is killed.
DRAWS = """
import os, sys
from pathlib import Path
from kafka_core.errors import BlocksUnavailable
from embedded_kafka.producer_ids.allocator import ProducerIds
from embedded_kafka.producer_ids.files import FileBlocks
ids = ProducerIds(FileBlocks(Path(sys.argv[1]), block_size=int(sys.argv[2])))
ids.start()
while True:
    try:
        os.write(1, b"%d\\n" % ids.next_id())
    except BlocksUnavailable:
        ids.wait_until_ready(10_000)
"""
ROOT = Path(__file__).parents[3]


def test_the_first_block_is_0_to_999_and_is_on_the_disk_in_kafkas_json(tmp_path: Path) -> None:
    """Rule: seed 000 §5.1.2 (first block, format), for a broker without ZooKeeper."""
    assert FileBlocks(tmp_path, broker_id=35).claim() == Block(0, 999)

    expected = b'{"version":1,"broker":35,"block_start":"0","block_end":"999"}'
    assert (tmp_path / FILE_NAME).read_bytes() == expected
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_another_run_goes_on_behind_the_block_of_the_last_one(tmp_path: Path) -> None:
    FileBlocks(tmp_path).claim()

    assert FileBlocks(tmp_path).claim() == Block(1000, 1999)


def test_a_garbled_file_hands_out_nothing_and_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"garbled")

    with pytest.raises(GarbledBlock):
        FileBlocks(tmp_path).claim()

    assert (tmp_path / FILE_NAME).read_bytes() == b"garbled"


def test_when_all_ids_are_claimed_the_file_is_left_as_it_is(tmp_path: Path) -> None:
    last = encode(Block(MAX_PRODUCER_ID - 5, MAX_PRODUCER_ID), 0)
    (tmp_path / FILE_NAME).write_bytes(last)

    with pytest.raises(ProducerIdsExhausted):
        FileBlocks(tmp_path).claim()

    assert (tmp_path / FILE_NAME).read_bytes() == last


def test_half_a_write_that_a_crash_left_behind_is_not_read(tmp_path: Path) -> None:
    FileBlocks(tmp_path).claim()
    (tmp_path / FILE_NAME).with_suffix(".tmp").write_bytes(b'{"version":1,"bro')

    assert FileBlocks(tmp_path).claim() == Block(1000, 1999)


def test_a_disk_that_refuses_is_asked_again_and_has_lost_nothing(tmp_path: Path) -> None:
    store = FileBlocks(tmp_path)
    store.claim()
    # A directory in its place is what stops even root from writing.
    in_the_way = (tmp_path / FILE_NAME).with_suffix(".tmp")
    in_the_way.mkdir()

    with pytest.raises(BlocksUnavailable, match="no id was handed out") as refused:
        store.claim()

    assert refused.value.facts["path"] == str(tmp_path / FILE_NAME)
    in_the_way.rmdir()
    assert store.claim() == Block(1000, 1999)


def test_a_file_that_is_removed_under_a_running_broker_does_not_begin_its_ids_again(tmp_path: Path) -> None:
    store = FileBlocks(tmp_path)
    store.claim()
    (tmp_path / FILE_NAME).unlink()

    assert store.claim() == Block(1000, 1999)


@pytest.mark.parametrize("size", [0, -5])
def test_an_impossible_size_is_refused_before_the_first_claim(tmp_path: Path, size: int) -> None:
    with pytest.raises(ValueError):
        FileBlocks(tmp_path, block_size=size)


@pytest.mark.parametrize("size", [1, 10, 1000])
def test_no_id_comes_again_after_a_sigkill_at_any_moment(tmp_path: Path, size: int) -> None:
    """Rule: seed 000 §5.1.2: a block is never reused after a crash."""
    moments = random.Random(size)
    drawn: list[int] = []
    for _ in range(5):
        with subprocess.Popen(
            [sys.executable, "-c", DRAWS, str(tmp_path), str(size)], stdout=subprocess.PIPE, cwd=ROOT
        ) as child:
            assert child.stdout is not None
            said = [child.stdout.readline() for _ in range(moments.randrange(1, 40 + 2 * size))]
            child.kill()
            # What was on its way; the last line may be cut.
            said += child.stdout.read().splitlines(keepends=True)
        assert child.returncode == -signal.SIGKILL, "the fault did not fire"
        drawn += [int(line) for line in said if line.endswith(b"\n")]

    assert all(earlier < following for earlier, following in itertools.pairwise(drawn))
    assert parse((tmp_path / FILE_NAME).read_bytes()).end >= drawn[-1]
