"""Plays cases of a target in a process of its own, and judges time and memory.

Owns: the limits; what is a defect.
Does not know: the targets.

A case is a defect where it raises, where it takes more than a second of the processor, where it takes more memory than
its target may, or where its process ends or does not come back. Memory is flat where later cases find no more of it in
use than earlier ones.
"""

from __future__ import annotations

import logging
import os
import statistics
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from tests.fuzz.target import Target, seeded
from tests.support.forks import forks
from tests.support.memory import forget_peak, peak_bytes, resident_bytes

MOST_CPU_S = 1.0
"""Of one case."""

SILENT_FOR_S = 60.0
"""Without a sign of a case's end, by a busy machine's clock, it counts as hung."""

_BEGINS_WITHIN_S = 300.0
"""Before the first case a process imports and compiles, which says nothing of any case."""

_NOT_BEGUN = -1

GROWS_AT_MOST_MB = 32
"""From the first third of the blocks to the last. A leak of 100 bytes a case is found after 300,000 of them."""

_MB = 1 << 20
_BLOCK = 500
_RENEWED_EVERY = 10
_DEFECTS_KEPT = 20
_LEAST_BLOCKS = 40
"""Fewer have no first and last third that tell anything."""


@dataclass
class Told:
    """What came of the cases of one target."""

    name: str
    cases: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    slowest_ms: float = 0.0
    peak_mb: float = 0.0
    grown_mb: float | None = None
    defects: list[str] = field(default_factory=list)


def play(made: type[Target], seed: int, *, seconds: float | None = None, cases: int | None = None) -> Told:
    """So many cases of this target, or as many as there is time for, in another process. What it told last counts,
    also where it ends.
    """
    context = forks()
    ours, theirs = context.Pipe(duplex=False)
    at = context.Value("q", _NOT_BEGUN, lock=False)
    process = context.Process(target=_played, args=(made, seed, seconds, cases, theirs, at), daemon=True)
    process.start()
    theirs.close()
    told = Told(made.name)
    seen, since = _NOT_BEGUN, time.monotonic()
    while True:
        try:
            if ours.poll(1.0):
                told = ours.recv()
        except EOFError:
            break
        if at.value != seen:
            seen, since = at.value, time.monotonic()
        elif (silent_s := time.monotonic() - since) > (_BEGINS_WITHIN_S if seen == _NOT_BEGUN else SILENT_FOR_S):
            told.defects.append(f"case {seen}: does not come back in {silent_s:.0f} s")
            process.kill()
            break
    process.join()
    if process.exitcode and not told.defects:
        told.defects.append(f"case {at.value}: its process ended with {process.exitcode}")
    return told


def _played(made: type[Target], seed: int, seconds: float | None, cases: int | None, pipe: Connection, at: Any) -> None:
    os.nice(5)
    warnings.simplefilter("error", FutureWarning)
    logging.lastResort = _Formats()
    told, target = Told(made.name), made()
    resident: list[float] = []
    until = None if seconds is None else time.monotonic() + seconds
    try:
        for block in _blocks(cases):
            forget_peak()
            before = resident_bytes()
            for number in block:
                at.value = number
                _case(target, seed, number, told)
            # The first block loads and compiles what is loaded and compiled once.
            peak = (peak_bytes() - before) / _MB if resident else 0.0
            told.peak_mb = max(told.peak_mb, peak)
            if peak > target.most_mb:
                told.defects.append(f"cases {block.start} to {block.stop - 1}: {peak:.0f} MB more at a time")
            resident.append(resident_bytes() / _MB)
            pipe.send(told)
            if len(told.defects) >= _DEFECTS_KEPT or (until is not None and time.monotonic() > until):
                break
            if len(resident) % _RENEWED_EVERY == 0:
                target.renewed()
        _judge_growth(told, resident)
        pipe.send(told)
    finally:
        target.closed()


class _Formats(logging.Handler):
    """In place of the screen: what is logged is made a text, which raises where it cannot be."""

    def emit(self, record: logging.LogRecord) -> None:
        """Its text."""
        record.getMessage()


def _case(target: Target, seed: int, number: int, told: Told) -> None:
    case = target.made(seeded(seed, target.name, number))
    began = time.thread_time()
    try:
        told.outcomes[target.played(case)] += 1
    except Exception as error:  # noqa: BLE001 -- this is what is looked for
        told.outcomes["defect"] += 1
        text = "".join(traceback.format_exception(error)[-6:])
        told.defects.append(
            f"case {number}: {type(error).__name__}: {str(error)[:300]}\n{text[-3000:]}\nthe case: {case!r:.2000}"
        )
    took = time.thread_time() - began
    told.cases += 1
    told.slowest_ms = max(told.slowest_ms, took * 1000)
    if took > MOST_CPU_S and told.cases > 1:
        told.defects.append(f"case {number}: took {took:.1f} s of the processor\nthe case: {case!r:.2000}")


def _blocks(cases: int | None) -> Iterator[range]:
    at = 0
    while cases is None or at < cases:
        end = at + _BLOCK if cases is None else min(at + _BLOCK, cases)
        yield range(at, end)
        at = end


def _judge_growth(told: Told, resident: list[float]) -> None:
    """By medians: a broker that is about to be renewed holds more than a new one."""
    if len(resident) < _LEAST_BLOCKS:
        return
    third = len(resident) // 3
    early, late = statistics.median(resident[1 : third + 1]), statistics.median(resident[-third:])
    told.grown_mb = late - early
    if told.grown_mb > GROWS_AT_MOST_MB:
        told.defects.append(f"memory is not flat: it grew by {told.grown_mb:.0f} MB in {told.cases} cases")
