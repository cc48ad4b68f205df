"""A minute of cases that are always the same ones, what was found before, and that a defect would be found."""

from __future__ import annotations

import ast
import random
import time
from pathlib import Path
from typing import ClassVar

import pytest

from tests.fuzz import play as played
from tests.fuzz.changes import changed_bytes, changed_json
from tests.fuzz.page import page
from tests.fuzz.play import Told, play
from tests.fuzz.target import Stateless, seeded
from tests.fuzz.targets import TARGETS

pytestmark = pytest.mark.slow

SEED = 20261128
CASES = {
    "requests": 4_000, "requests of a stranger": 4_000, "connections": 3_000, "logins": 20_000, "answers": 3_000, "records": 10_000,
    "decisions": 10_000, "notes": 20_000, "turns": 20_000, "offset log": 10_000, "group offsets": 40_000, "options": 3_000, "patterns": 5_000,
    "YAML": 1_000, "SCRAM": 4_000, "token answers": 2_000,
}  # fmt: skip
"""Some three seconds of a core each."""

KEPT = Path(__file__).parent / "kept"


@pytest.mark.parametrize("name", TARGETS)
def test_the_same_cases_as_ever(name: str) -> None:
    told = play(TARGETS[name], SEED, cases=CASES[name])

    assert not told.defects, "\n".join(told.defects)
    assert told.cases == CASES[name] and len(told.outcomes) > 1, told.outcomes


@pytest.mark.parametrize(
    ("name", "line"),
    [(path.stem, line) for path in sorted(KEPT.glob("*.txt")) for line in path.read_text().splitlines() if line[:1] != "#"],
)  # fmt: skip
def test_what_was_found_once_is_not_found_again(name: str, line: str) -> None:
    target = TARGETS[name]()
    began = time.thread_time()
    try:
        target.played(ast.literal_eval(line))
    finally:
        target.closed()
    assert time.thread_time() - began < played.MOST_CPU_S


# ---- what is wrong is seen


class Wrong(Stateless):
    """Goes wrong, each in a way of its own."""

    name = "wrong"
    reads = "nothing"

    def made(self, chance: random.Random) -> int:
        """The case is its number, as far as anybody can tell."""
        return chance.randrange(1_000)

    def played(self, case: int) -> str:
        """In case 7, or in all of them."""
        raise NotImplementedError


class Raises(Wrong):
    name = "raises"

    def played(self, case: int) -> str:
        if case == 7:
            raise KeyError("not one of ours")
        return "read"


class Spins(Wrong):
    name = "spins"

    def played(self, case: int) -> str:
        until = time.thread_time() + (1.2 if case == 7 else 0)
        while time.thread_time() < until:
            pass
        return "read"


class Dies(Wrong):
    name = "dies"

    def played(self, case: int) -> str:
        import os

        if case == 7:
            os._exit(11)
        return "read"


class Hoards(Wrong):
    name = "hoards"
    _kept: ClassVar[list[bytes]] = []

    def played(self, case: int) -> str:
        self._kept.append(bytes(4_000))
        return "read"


class Hangs(Wrong):
    name = "hangs"

    def played(self, case: int) -> str:
        if case == 7:
            time.sleep(600)
        return "read"


class Swallows(Wrong):
    name = "swallows"
    most_mb = 20

    def played(self, case: int) -> str:
        bytearray(60 << 20 if case == 7 else 1)
        return "read"


WRONG = {each.name: each for each in (Raises, Spins, Dies, Hoards, Hangs, Swallows)}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raises", "KeyError: 'not one of ours'"),
        ("spins", "of the processor"),
        ("dies", "its process ended with 11"),
        ("hoards", "memory is not flat"),
        ("hangs", "does not come back"),
        ("swallows", "MB more at a time"),
    ],
)
def test_a_defect_of_each_kind_is_seen(name: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "hangs":
        monkeypatch.setattr(played, "SILENT_FOR_S", 2.0)

    # Growth is judged over many cases; of the others one in a thousand goes wrong.
    told = play(WRONG[name], SEED, cases=20_000 if name == "hoards" else 3_000)

    assert any(said in each for each in told.defects), told


def test_a_case_is_its_target_seed_and_number_alone() -> None:
    for name, made in TARGETS.items():
        target = made()
        first = [repr(target.made(seeded(1, name, number))) for number in range(5)]
        again = [repr(target.made(seeded(1, name, number))) for number in reversed(range(5))]
        assert first == again[::-1], name
        assert [repr(ast.literal_eval(each)) for each in first] == first, f"{name}: a case that cannot be kept"


def test_changes_change() -> None:
    chance = random.Random(3)
    body = {"a": [1, {"b": "c"}], "d": 2}
    assert sum(changed_bytes(chance, b"some bytes") != b"some bytes" for _ in range(100)) > 90
    assert sum(changed_json(chance, body) != body for _ in range(100)) > 90


def test_the_page_has_every_target_and_its_defects() -> None:
    found = [Told(name, cases=2, defects=["case 1: x"] if name == "SCRAM" else []) for name in TARGETS]

    text = page(found, 5)

    assert f"**{2 * len(TARGETS)} cases of seed 5: 1 defects.**" in text
    assert all(TARGETS[name].reads in text for name in TARGETS)
