"""Plays breaches: in a copy of the tree the code is changed, and the tests of the rule have to fail.

Owns: the copies, the processes that run the tests, and the judgement of what they report.
Does not know: the table of breaches, how the result is shown.
Invariants: the copy is as the tree between two breaches; a run ends within its time, with everything that it started.
"""

from __future__ import annotations

import enum
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue

from tests.rules import outcomes
from tests.rules.table import Breach, Row, row_of
from tests.support.planting import ROOT

COPIED = (
    "connector",
    "spark_jobs",
    "conf",
    "docs",
    "evidence",
    "tests",
    "setup.cfg",
    "pyproject.toml",
)

RUN_TIMEOUT_S = 120.0
"""How long the tests of one row may take. The slowest row takes a fifth of it; a loaded machine may need the rest."""

_ALL_TIMEOUT_S = 1200.0
_ENDS_WITHIN_S = 10.0


class Verdict(enum.Enum):
    """What came of a breach."""

    CAUGHT = "caught"
    SURVIVED = "survived"
    UNUSABLE = "unusable"
    """No test failed in its body, but some could not be run: the breach breaks more than its rule."""


@dataclass(frozen=True)
class Seen:
    """How the tests of a run ended: names that passed, that failed in their body, and that failed elsewhere or never
    began.

    `left_out` are those that only Apache Kafka can pass.
    """

    code: str = ""
    passed: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    broken: frozenset[str] = frozenset()
    left_out: frozenset[str] = frozenset()
    timed_out: bool = False
    output: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Result:
    """A breach, its row, and what was seen."""

    breach: Breach
    row: Row
    seen: Seen = field(compare=False)

    @property
    def verdict(self) -> Verdict:
        """Whether the rule is pinned against this breach."""
        if self.seen.failed:
            return Verdict.CAUGHT
        complete = not self.seen.broken and not self.seen.timed_out
        return Verdict.SURVIVED if complete else Verdict.UNUSABLE


def read_outcomes(text: str, asked: Iterable[str]) -> Seen:
    """What a file of outcomes says of the tests asked for."""
    code = ""
    failed, elsewhere, passed, left_out = set(), set(), set(), set()
    for line in text.splitlines():
        entry = json.loads(line)
        if entry["kind"] == "code":
            code = entry["path"]
        elif entry["kind"] == "left out":
            left_out.add(entry["name"])
        elif entry["outcome"] == "failed":
            (failed if entry["when"] == "call" else elsewhere).add(entry["name"])
        elif entry["when"] == "call" and entry["outcome"] == "passed":
            passed.add(entry["name"])
    names = set(asked)
    missing = names - failed - passed - left_out
    return Seen(
        code=code,
        passed=frozenset((passed & names) - failed - elsewhere),
        failed=frozenset(failed & names),
        broken=frozenset(((elsewhere & names) | missing) - failed),
        left_out=frozenset(left_out & names),
    )


class Copy:
    """A copy of the tree in a directory of its own, one breach at a time."""

    _stamps = itertools.count(1)

    def __init__(self, directory: Path, numba_cache: Path, root: Path = ROOT) -> None:
        self._root = directory / "tree"
        self._outcomes = directory / "outcomes.jsonl"
        self._numba_cache = numba_cache
        skipped = shutil.ignore_patterns("__pycache__", ".*", "*.egg-info")
        for name in COPIED:
            source, target = root / name, self._root / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=skipped)
            elif source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)

    @contextmanager
    def broken_by(self, breach: Breach) -> Iterator[None]:
        """The copy with the breach inside of the block, and without it behind."""
        changed = breach.planted.files(self._root)
        before = {path: path.read_text(encoding="utf-8") for path in changed}
        try:
            self._write(changed)
            yield
        finally:
            self._write(before)

    def _write(self, texts: Mapping[Path, str]) -> None:
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
            # Python takes a compiled file for current where time (in seconds) and size are the same.
            stamp = time.time() + next(self._stamps)
            os.utime(path, (stamp, stamp))

    def run(self, tests: Sequence[str], timeout_s: float) -> Seen:
        """Run these tests of the copy."""
        self._outcomes.unlink(missing_ok=True)
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(self._root), str(self._root / "connector")]),
            "NUMBA_CACHE_DIR": str(self._numba_cache),
            outcomes.VARIABLE: str(self._outcomes),
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", outcomes.__name__]
        output = self._outcomes.with_suffix(".txt")
        began = time.monotonic()
        with output.open("w", encoding="utf-8") as file:
            process = subprocess.Popen(
                [*command, *tests],
                cwd=self._root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            timed_out = not _ended(process, timeout_s)
        written = self._outcomes.read_text(encoding="utf-8") if self._outcomes.exists() else ""
        seen = read_outcomes(written, tests)
        if written:
            self.judge(seen)
        said = output.read_text(encoding="utf-8", errors="replace")
        return replace(seen, timed_out=timed_out, output=said, seconds=time.monotonic() - began)

    def judge(self, seen: Seen) -> None:
        """RuntimeError where other code was tested than the copy's: the environment has the package installed, too."""
        if not Path(seen.code).is_relative_to(self._root.resolve()):
            raise RuntimeError(f"the tests ran against {seen.code} instead of the copy")


def _ended(process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    """Whether the process ended by itself within the time; it is over in any case, with its whole session."""
    try:
        process.wait(timeout_s)
        return True
    except subprocess.TimeoutExpired:
        return False
    finally:
        # What it started and did not end, too: brokers look at their parent, but not at once.
        for way in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, way)
                process.wait(_ENDS_WITHIN_S)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue


class Unfit(Exception):
    """Without any breach a test of the table fails, or does not run here."""


def play(breaches: Sequence[Breach], all_rows: list[Row], *, at_once: int = 2, root: Path = ROOT) -> Iterator[Result]:
    """Every breach and what came of it, in the order in which they end. CodeMoved, Unfit: before any is played."""
    for breach in breaches:
        breach.planted.files(root)
    todo = [(breach, row_of(breach, all_rows)) for breach in breaches]
    wanted = sorted({test for _, row in todo for test in row.tests})
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rules-")))
        numba_cache = scratch / "numba"
        numba_cache.mkdir(mode=0o700)
        copies: SimpleQueue[Copy] = SimpleQueue()
        made = [Copy(scratch / str(number), numba_cache, root) for number in range(at_once)]
        _prove_fit(made[0], wanted)
        for copy in made:
            copies.put(copy)

        def one(breach: Breach, row: Row) -> Result:
            copy = copies.get()
            try:
                with copy.broken_by(breach):
                    return Result(breach, row, copy.run(row.tests, RUN_TIMEOUT_S))
            finally:
                copies.put(copy)

        pool = stack.enter_context(ThreadPoolExecutor(at_once))
        futures = [pool.submit(one, breach, row) for breach, row in todo]
        for future in futures:
            yield future.result()


def _prove_fit(copy: Copy, tests: Sequence[str]) -> None:
    seen = copy.run(tests, _ALL_TIMEOUT_S)
    unfit = sorted(set(tests) - seen.passed - seen.left_out)
    if unfit:
        raise Unfit(f"without any breach these do not pass: {', '.join(unfit)}\n{seen.output[-4000:]}")
