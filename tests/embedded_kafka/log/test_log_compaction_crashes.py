"""A broker that is killed while it compacts a log: the next start has every record that it should, once."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from embedded_kafka.log import PartitionLog
from embedded_kafka.log.tail import cut
from kafka_core.errors import LogDamaged
from tests.embedded_kafka.log.compaction_tools import (
    COMPACTED,
    committed,
    compact,
    compacted_log,
    latest,
    records,
    seal,
    write,
)
from tests.embedded_kafka.log.log_tools import NOW, end, open_log
from tests.embedded_kafka.log.test_log_recovery import crashed

SUFFIXES = (".txnindex", ".timeindex", ".index", ".log")


def filled(directory: Path) -> PartitionLog:
    """A log of many segments, with transactions of both kinds."""
    log = compacted_log(directory)
    for number in range(12):
        transactional = number % 4 == 0
        write(
            log, (b"k%d" % (number % 3), b"%d" % number), producer_id=1 if transactional else -1,
            sequence=number // 4 if transactional else -1, transactional=transactional,
        )  # fmt: skip
        if transactional:
            end(log, 1, commit=number % 8 == 0)
    seal(log)
    return log


def test_a_crash_at_any_pause_leaves_a_log_with_the_same_table(tmp_path: Path) -> None:
    log = filled(tmp_path / "log")
    table, opened = latest(committed(log)), 0
    seen: set[tuple[str, ...]] = set()

    def look() -> None:
        nonlocal opened
        files = tuple(sorted(str(path) for path in (tmp_path / "log").rglob("*")))
        if files in seen:
            return
        seen.add(files)
        crash = compacted_log(crashed(tmp_path / "log", tmp_path / "crash"))
        assert latest(committed(crash)) == table
        assert not (tmp_path / "crash" / "cleaned").exists()
        crash.abandon()
        opened += 1

    assert compact(log, NOW, look)
    assert opened > 3


def prepared(directory: Path, beside: Path) -> list[int]:
    """A copy of a log whose first cleaned segment is on the disk and does not count yet; the bases of those that it
    replaces.
    """
    log = compacted_log(directory)
    for number in range(12):
        write(log, (b"k%d" % (number % 3), b"%d" % number))
    seal(log)
    log.reconfigure(replace(COMPACTED, segment_bytes=10_000))
    compaction = log.compaction(NOW)
    assert compaction is not None
    for work in compaction.steps():
        if work is not None:
            work()
            crashed(directory, beside)
            break
    log.abandon()
    bases = json.loads((beside / "cleaned" / "replaced.json").read_bytes())["bases"]
    assert len(bases) > 2
    return list(bases)


def test_a_crash_at_any_moment_of_taking_the_place_is_finished_by_the_next_start(tmp_path: Path) -> None:
    bases = prepared(tmp_path / "log", tmp_path / "before")
    untouched = compacted_log(crashed(tmp_path / "before", tmp_path / "untouched"))
    table = latest(records(untouched))
    assert len(records(untouched)) > len(table)
    moves = [(base, suffix) for base in bases[1:] for suffix in SUFFIXES] + [(bases[0], s) for s in SUFFIXES]
    shown = []
    for done in range(len(moves) + 1):
        directory = crashed(tmp_path / "before", tmp_path / f"after-{done}")
        (directory / "cleaned").rename(directory / "swap")
        for base, suffix in moves[:done]:
            path = directory / f"{base:020d}{suffix}"
            if base == bases[0]:
                (directory / "swap" / path.name).replace(path)
            else:
                path.unlink()
        log = compacted_log(directory)
        shown.append(records(log))
        assert latest(shown[-1]) == table
        assert not (directory / "swap").exists()
        log.abandon()
    assert all(each == shown[0] for each in shown)
    assert len(shown[0]) < len(records(untouched))


def test_segments_with_gaps_are_no_damage_where_a_cleaner_has_been_and_damage_where_none_was(
    tmp_path: Path,
) -> None:
    log = filled(tmp_path / "log")
    compact(log)
    log.close()
    shutil.copytree(tmp_path / "log", tmp_path / "other")
    (tmp_path / "other" / "cleaner-offset.json").unlink()
    again = compacted_log(tmp_path / "log")
    assert records(again) == records(again)
    with pytest.raises(LogDamaged):
        compacted_log(tmp_path / "other")


def test_lost_indexes_of_cleaned_segments_are_made_again(tmp_path: Path) -> None:
    log = filled(tmp_path / "log")
    compact(log)
    shown = (records(log), committed(log))
    log.close()
    for path in (tmp_path / "log").iterdir():
        if path.suffix in (".index", ".timeindex", ".txnindex"):
            path.unlink()
    again = compacted_log(tmp_path / "log")
    assert (records(again), committed(again)) == shown


def test_a_log_that_lost_its_end_is_cleaned_from_there_again(tmp_path: Path) -> None:
    log = filled(tmp_path)
    compact(log)
    at = records(log)[0][0]
    cut(tmp_path, log.abandon(), at)
    log = compacted_log(tmp_path)
    for number in range(4):
        write(log, (b"k", b"%d" % number))
    seal(log)
    compact(log)
    assert [value for _, key, value in records(log) if key == b"k"] == [b"3"]


_CHILD = """
import random, sys
from pathlib import Path
from tests.embedded_kafka.log.compaction_tools import compacted_log, compact, write
log = compacted_log(Path(sys.argv[1]))
rng = random.Random(int(sys.argv[2]))
number = log.end_offset
while True:
    for _ in range(15):
        write(log, (b"k%d" % (number % 7), b"%d" % number))
        number += 1
    print(number, flush=True)
    compact(log)
"""


@pytest.mark.kafka
@pytest.mark.embedded
def test_a_broker_that_is_killed_again_and_again_while_it_compacts_loses_nothing(tmp_path: Path) -> None:
    directory, rng, written = tmp_path / "log", random.Random(3), 0
    for turn in range(4):
        child = subprocess.Popen(
            [sys.executable, "-c", _CHILD, str(directory), str(turn)],
            stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": os.getcwd()},
        )  # fmt: skip
        assert child.stdout is not None
        for _ in range(rng.randint(2, 12)):
            written = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        written = int((child.stdout.read().split() or [written])[-1])
        child.wait()
        child.stdout.close()
        log = open_log(directory, COMPACTED)
        table = latest(records(log))
        log.abandon()
        assert len(table) == 7
        assert all(int(value) % 7 == int(str(key)[3:-1]) for key, value in table.items())
        assert max(map(int, table.values())) >= written - 1
        assert min(map(int, table.values())) >= written - 7
