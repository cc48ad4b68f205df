"""Opening a log again: after a clean end, after SIGKILL, and after bytes on the disk have changed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from embedded_kafka.log import PartitionLog
from embedded_kafka.refusals import Refused
from embedded_kafka.settings.config import LogConfig
from kafka_core.errors import LogDamaged
from kafka_core.protocol.error_codes import Code
from tests.embedded_kafka.log.log_tools import (
    KEPT,
    NOW,
    client_batch,
    end,
    offsets_in,
    open_log,
    put,
    read_all,
    refused,
    segment_files,
    show,
)

SMALL = LogConfig(segment_bytes=1_200, index_interval_bytes=150, retention_ms=-1)
FIRST = f"{0:020d}.log"


def crashed(directory: Path, beside: Path) -> Path:
    """A copy of the directory as SIGKILL would leave it now."""
    shutil.rmtree(beside, ignore_errors=True)
    return Path(shutil.copytree(directory, beside))


class History:
    """Idempotent and transactional producers, markers with and without a new epoch, plain batches, sometimes
    deletions.
    """

    def __init__(self, seed: int, *, deletes: bool = False) -> None:
        self.rng = random.Random(seed)
        self._deletes = deletes
        self._sequences: dict[tuple[int, int], int] = {}
        self._epochs = dict.fromkeys(range(6), 0)

    def play(self, log: PartitionLog, steps: int) -> PartitionLog:
        for _ in range(steps):
            self._step(log)
        return log

    def _step(self, log: PartitionLog) -> None:
        rng = self.rng
        producer_id = rng.randrange(6)
        epoch = self._epochs[producer_id]
        opened = log.is_open(producer_id) is not None
        kind = rng.random()
        if kind < 0.1:
            put(log, rng.randint(1, 3), timestamp_ms=NOW + rng.randint(-50, 50))
        elif kind < 0.7:
            sequence = self._sequences.get((producer_id, epoch), 0)
            count = rng.randint(1, 3)
            put(
                log, count, producer_id=producer_id, epoch=epoch, sequence=sequence,
                transactional=opened or producer_id < 3, timestamp_ms=NOW + rng.randint(-50, 50),
            )  # fmt: skip
            self._sequences[producer_id, epoch] = sequence + count
        elif kind < 0.92 and producer_id < 3:
            self._epochs[producer_id] += rng.randint(0, 1)
            end(
                log,
                producer_id,
                commit=rng.random() < 0.5,
                epoch=self._epochs[producer_id],
                coordinator_epoch=1,
            )
        elif kind > 0.98 and self._deletes:
            log.delete_records(rng.randint(log.log_start_offset, log.end_offset))
        elif kind > 0.94:
            log.append_internal([(b"k", b"v")], now_ms=NOW)


@pytest.mark.parametrize("seed", range(12))
def test_after_a_clean_end_and_after_a_crash_the_log_shows_what_it_showed_before(seed: int, tmp_path: Path) -> None:
    """Rule: seed 004 Broker Failure (a restarted broker reads a snapshot and then the log)."""
    history = History(seed, deletes=True)
    config = SMALL if seed % 2 else KEPT
    log = open_log(tmp_path / "log", config)
    for _ in range(4):
        history.play(log, 40)
        before = show(log)
        copy = open_log(crashed(tmp_path / "log", tmp_path / "crashed"), config)
        assert show(copy) == before
        copy.close()
        assert show(open_log(tmp_path / "crashed", config)) == before, "recovered, then closed cleanly"
        if history.rng.random() < 0.5:
            log.close()
            log = open_log(tmp_path / "log", config)
            assert show(log) == before


@pytest.mark.parametrize("clean", [True, False])
def test_all_five_batches_are_still_recognised_after_a_restart(clean: bool, tmp_path: Path) -> None:
    """Rule: seed 000 §5.5 step 5, 004 Broker Failure: more than Kafka, whose snapshot keeps one batch of a producer."""
    log = open_log(tmp_path)
    for sequence in range(7):
        put(log, producer_id=1, sequence=sequence)
    end(log, 1, commit=True)
    if clean:
        log.close()
    else:
        log.abandon()

    log = open_log(tmp_path)

    assert [put(log, producer_id=1, sequence=sequence).base_offset for sequence in range(2, 7)] == [
        2,
        3,
        4,
        5,
        6,
    ]
    with refused(Code.OUT_OF_ORDER_SEQUENCE_NUMBER):
        put(log, producer_id=1, sequence=1)


def test_a_clean_end_is_believed_only_while_nothing_was_written_since(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, producer_id=1, sequence=0)
    log.close()
    mark = tmp_path / "clean-end.json"
    assert mark.exists()

    log = open_log(tmp_path)
    assert read_all(log) and mark.exists(), "reading leaves the mark"
    put(log, producer_id=1, sequence=1)
    assert not mark.exists()
    log.abandon()

    assert open_log(tmp_path).producers()[0].last_sequence == 1


def test_what_an_append_returned_survives_sigkill(tmp_path: Path) -> None:
    """The process says an offset only after `append` returned it, and is killed in the middle of its work."""
    program = (
        "import sys; from pathlib import Path; from tests.embedded_kafka.log.log_tools import open_log, put\n"
        "log = open_log(Path(sys.argv[1]))\n"
        "for sequence in range(10**6):\n"
        "    print(put(log, producer_id=1, sequence=sequence, value=b'x' * 500).base_offset, flush=True)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    answered = [int(child.stdout.readline()) for _ in range(200)]
    os.kill(child.pid, signal.SIGKILL)
    answered += [int(line) for line in child.stdout.read().split("\n")[:-1]]
    child.wait()

    log = open_log(tmp_path)

    assert log.end_offset > answered[-1]
    assert put(log, producer_id=1, sequence=answered[-1]).base_offset == answered[-1]
    assert [base for base, _ in offsets_in(read_all(log))] == list(range(log.end_offset))


# ---- a torn tail


def test_a_tail_torn_at_any_byte_of_the_last_three_batches_is_cut_to_the_last_whole_batch(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path / "log")
    for sequence in range(5):
        put(log, 2, producer_id=1, sequence=2 * sequence, transactional=True)
    log.abandon()
    content = (tmp_path / "log" / FIRST).read_bytes()
    size = len(content) // 5

    for length in range(2 * size, len(content) + 1):
        torn = tmp_path / f"torn-{length}"
        torn.mkdir()
        (torn / FIRST).write_bytes(content[:length])
        log = open_log(torn)
        whole = length // size
        assert (log.end_offset, log.size_bytes) == (2 * whole, whole * size)
        assert read_all(log) == content[: whole * size]
        assert put(log, 2, producer_id=1, sequence=2 * whole, transactional=True).base_offset == 2 * whole
        log.abandon()


def test_what_is_cut_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(tmp_path)
    put(log)
    put(log)
    log.abandon()
    size = len(client_batch())
    os.truncate(tmp_path / FIRST, 2 * size - 10)

    open_log(tmp_path)

    assert f"cut at position {size}, offset 1: the last {size - 10} bytes" in caplog.text


def test_a_tail_of_zeros_is_cut(tmp_path: Path) -> None:
    """As some file systems leave it when the machine lost power."""
    log = open_log(tmp_path)
    put(log)
    log.abandon()
    size = log.size_bytes
    with (tmp_path / FIRST).open("ab") as file:
        file.write(bytes(5000))

    assert open_log(tmp_path).size_bytes == size


# ---- damage


@pytest.mark.parametrize("number", range(4))
def test_a_flipped_byte_in_any_place_of_a_header_is_never_served(number: int, tmp_path: Path) -> None:
    """In the last batch it is cut, like a torn one; with whole batches behind it the log is refused and left as it
    is.
    """
    log = open_log(tmp_path / "log")
    for sequence in range(4):
        put(log, 2, producer_id=1, sequence=2 * sequence)
    log.abandon()
    content = (tmp_path / "log" / FIRST).read_bytes()
    size = len(content) // 4

    for place in range(61):
        flipped = bytearray(content)
        flipped[number * size + place] ^= 1 << place % 8
        path = tmp_path / f"flip-{place}" / FIRST
        path.parent.mkdir()
        path.write_bytes(flipped)
        if number == 3:
            assert read_all(open_log(path.parent)) == content[: 3 * size]
            continue
        with pytest.raises(LogDamaged) as damage:
            open_log(path.parent)
        assert damage.value.facts["file"] == str(path)
        assert damage.value.facts["position"] == number * size
        assert path.read_bytes() == bytes(flipped)


@pytest.mark.parametrize("seed", range(6))
def test_any_single_change_anywhere_is_cut_refused_or_not_served(seed: int, tmp_path: Path) -> None:
    """Over several segments, with and without the mark of a clean end: no reader ever gets a byte that was not
    written.
    """
    rng = random.Random(seed)
    log = History(seed).play(open_log(tmp_path / "log", SMALL), 60)
    content = read_all(log)
    if seed % 2:
        log.close()
    else:
        log.abandon()
    cut, whole, refusals = 0, 0, 0
    for _ in range(25):
        copy = crashed(tmp_path / "log", tmp_path / "copy")
        path = rng.choice([path for path in copy.glob("*.log") if path.stat().st_size])
        changed = bytearray(path.read_bytes())
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        try:
            served = read_all(open_log(copy, SMALL))
            cut += len(served) < len(content)
            whole += served == content
            assert content.startswith(served)
        except (LogDamaged, Refused) as error:
            refusals += isinstance(error, LogDamaged) or error.code is Code.CORRUPT_MESSAGE
    assert cut + refusals == 25
    assert not whole


def test_a_missing_segment_in_the_middle_is_refused(tmp_path: Path) -> None:
    log = History(3).play(open_log(tmp_path, SMALL), 80)
    log.close()
    segments = sorted(tmp_path.glob("*.log"))
    segments[1].unlink()

    with pytest.raises(LogDamaged, match="damaged in the middle"):
        open_log(tmp_path, SMALL)


def test_a_sealed_segment_that_was_cut_is_refused(tmp_path: Path) -> None:
    log = History(3).play(open_log(tmp_path, SMALL), 80)
    log.close()
    sealed = sorted(tmp_path.glob("*.log"))[1]
    os.truncate(sealed, sealed.stat().st_size - 1)

    with pytest.raises(LogDamaged, match=r"damaged in the middle.*next_segment"):
        open_log(tmp_path, SMALL)


def test_a_value_that_holds_a_batch_of_a_lower_offset_does_not_hide_a_torn_tail(tmp_path: Path) -> None:
    """Copies of old batches inside records are common (a mirrored log); only a later offset speaks for damage."""
    log = open_log(tmp_path)
    put(log, 5)
    inner = read_all(log)
    put(log, 1, value=inner)
    log.abandon()
    os.truncate(tmp_path / FIRST, (tmp_path / FIRST).stat().st_size - 1)

    assert open_log(tmp_path).end_offset == 5


# ---- indexes, snapshots, small files


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot"])
@pytest.mark.parametrize("harm", ["missing", "short", "garbled"])
@pytest.mark.parametrize("clean", [True, False])
def test_files_beside_the_batches_are_rebuilt(suffix: str, harm: str, clean: bool, tmp_path: Path) -> None:
    log = History(6).play(open_log(tmp_path, SMALL), 120)
    before = show(log)
    if clean:
        log.close()
    else:
        log.abandon()
    files = [path for path in sorted(tmp_path.glob(f"*{suffix}")) if path.stat().st_size]
    assert len(files) >= 2
    for path in files:
        if harm == "missing":
            path.unlink()
        elif harm == "short":
            os.truncate(path, path.stat().st_size - 1)
        else:
            path.write_bytes(b"\xff" * path.stat().st_size)

    assert show(open_log(tmp_path, SMALL)) == before
    assert {path.stem for path in tmp_path.glob(f"*{suffix}")} >= {path.stem for path in files[:-1]}


def test_an_index_that_lies_costs_time_and_never_truth(tmp_path: Path) -> None:
    """Only its last entry is looked at when the log is opened."""
    log = open_log(tmp_path, SMALL)
    for _ in range(50):
        put(log)
    log.close()
    lied = 0
    for index in sorted(tmp_path.glob("*.index"))[:-1]:
        entries = bytearray(index.read_bytes())
        for at in range(0, len(entries) - 8, 8):
            entries[at + 4 : at + 8] = (77).to_bytes(4, "big")
            lied += 1
        index.write_bytes(entries)

    log = open_log(tmp_path, SMALL)

    assert lied > 5
    for offset in range(50):
        found = log.read(offset, 1, read_committed=False, at_least_one=True)
        assert offsets_in(found.records) == [(offset, offset)]


def test_a_garbled_mark_only_means_a_scan_and_a_garbled_start_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 3)
    log.delete_records(2)
    log.close()
    (tmp_path / "clean-end.json").write_bytes(b"{")
    log = open_log(tmp_path)
    assert (log.log_start_offset, log.end_offset) == (2, 3)
    log.abandon()

    (tmp_path / "log-start-offset.json").write_bytes(b"{}")
    with pytest.raises(LogDamaged, match="a log's start offset cannot be read"):
        open_log(tmp_path)


def test_a_foreign_file_among_the_segments_is_refused(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("hello")

    with pytest.raises(LogDamaged, match="is not a segment"):
        open_log(tmp_path)


def test_a_log_whose_end_was_lost_before_its_start_goes_on_at_its_start(tmp_path: Path) -> None:
    """The deletion was on disk before the machine lost power, the records were not."""
    log = open_log(tmp_path)
    for sequence in range(4):
        put(log, producer_id=1, sequence=sequence)
    log.delete_records(4)
    log.abandon()
    os.truncate(tmp_path / FIRST, 2 * len(client_batch()))

    log = open_log(tmp_path)

    assert (log.log_start_offset, log.end_offset) == (4, 4)
    assert put(log).base_offset == 4
    log.abandon()
    assert open_log(tmp_path).end_offset == 5


def test_files_that_belong_to_no_segment_are_swept_up(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log)
    log.abandon()
    for name in ("9.snapshot", "00000000000000000009.index", "00000000000000000000.index.new"):
        (tmp_path / name).write_bytes(b"x")

    log = open_log(tmp_path)
    log.close()

    assert segment_files(tmp_path) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000000.txnindex",
        "00000000000000000001.snapshot",
    ]
