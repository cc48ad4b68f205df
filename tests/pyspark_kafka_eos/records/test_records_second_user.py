"""A second user of the machine has prepared every directory that he may write to: he can neither fill nor replace what
machine code is loaded from.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pyspark_kafka_eos

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can be two users"),
]

PACKAGE = Path(next(iter(pyspark_kafka_eos.__path__)))
VICTIM, SECOND = 64_001, 64_002

# Both users are forks: the interpreter itself may stand where only root can read it.
PLAY = f"""
import json, os, sys, tempfile
from pathlib import Path
import numba
from pyspark_kafka_eos.records import jit

VICTIM, SECOND = {VICTIM}, {SECOND}
digest = jit._sources_digest()

def as_user(user, action):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([]); os.setresgid(user, user, user); os.setresuid(user, user, user)
            os.write(writer, json.dumps(action()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text)

def choose():
    found = jit.cache_directory()
    return None if found is None else str(found)

def attack(path):
    # What he manages to do to the directory, and to each above it.
    done = []
    def attempt(name, action):
        try:
            action()
        except OSError:
            return
        done.append(name)
    here = Path(path)
    inside = [Path(root, name) for root, folders, files in os.walk(here) for name in (*folders, *files)]
    # His pickle in the directory, or in numba's own folder in it, or over what is there.
    for place in (here, *inside):
        attempt(f"wrote into {{place}}", lambda: (place / "evil.nbi").write_bytes(b"evil"))
        attempt(f"wrote over {{place}}", lambda: place.open("ab").close())
    for each in (here, *here.parents[:-1]):
        attempt(f"replaced {{each}}", lambda: os.rename(each, f"{{each}}-away"))
    return done

tempfile.tempdir = sys.argv[1]
chosen = as_user(VICTIM, choose)
print(json.dumps([chosen, [] if chosen is None else as_user(SECOND, lambda: attack(chosen))]))
"""


def play(tmp: Path, **environment: object) -> tuple[str | None, list[str]]:
    """The directory that the first user took, and what the second one could do to it."""
    kept = {
        name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME")
    }
    places = {"PYTHONPATH": str(PACKAGE.parent), "HOME": "/nonexistent", **{k: str(v) for k, v in environment.items()}}
    done = subprocess.run(
        [sys.executable, "-c", PLAY, str(tmp)], env={**kept, **places}, cwd="/", capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    chosen, managed = json.loads(done.stdout)
    return chosen, managed


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """As /tmp is: everybody may make files in it, and rename only his own."""
    for each in (tmp_path, *tmp_path.parents[:-1]):
        # pytest's directories are root's alone.
        if each.stat().st_mode & 0o777 == 0o700:
            each.chmod(0o711)
    folder = tmp_path / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def owned(folder: Path, user: int, mode: int) -> Path:
    folder.mkdir()
    os.chown(folder, user, user)
    folder.chmod(mode)
    return folder


def test_a_temporary_directory_that_nobody_prepared_serves(shared: Path) -> None:
    chosen, managed = play(shared)

    assert chosen is not None and chosen.startswith(str(shared / f"pyspark-kafka-eos-{VICTIM}"))
    assert managed == []


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o755])
def test_a_directory_that_the_second_user_made_first_is_not_used(shared: Path, mode: int) -> None:
    owned(shared / f"pyspark-kafka-eos-{VICTIM}", SECOND, mode)

    assert play(shared) == (None, [])


def test_a_link_that_the_second_user_made_leads_nowhere_of_his(shared: Path) -> None:
    his = owned(shared / "his", SECOND, 0o777)
    (shared / f"pyspark-kafka-eos-{VICTIM}").symlink_to(his)

    assert play(shared) == (None, [])
    assert list(his.iterdir()) == []


@pytest.mark.parametrize("variable", ["NUMBA_CACHE_DIR", "XDG_CACHE_HOME"])
def test_a_place_below_a_directory_of_the_second_user_is_passed_over(shared: Path, variable: str) -> None:
    own = owned(owned(shared / "his", SECOND, 0o755) / "victims", VICTIM, 0o700)

    chosen, managed = play(shared, **{variable: own})

    assert chosen is not None and chosen.startswith(str(shared / f"pyspark-kafka-eos-{VICTIM}"))
    assert managed == []


@pytest.mark.parametrize(("user", "mode"), [(0, 0o777), (VICTIM, 0o770), (VICTIM, 0o777)])
def test_a_place_below_a_directory_that_others_may_change_is_passed_over(shared: Path, user: int, mode: int) -> None:
    open_to_others = owned(shared / "open", user, mode)

    chosen, managed = play(shared, NUMBA_CACHE_DIR=open_to_others / "own")

    assert chosen is not None and chosen.startswith(str(shared / f"pyspark-kafka-eos-{VICTIM}"))
    assert managed == []


@pytest.mark.parametrize("left_open", ["folder", "file"])
def test_machine_code_that_others_may_write_is_not_loaded_from_an_image(shared: Path, left_open: str) -> None:
    image = owned(shared.parent / "image", 0, 0o755)
    taken, managed = play(shared, NUMBA_CACHE_DIR=image)
    # Root's directory, which the first user cannot fill, so his own serves.
    assert taken is not None and not taken.startswith(str(image)) and managed == []
    folder = owned(owned(image / Path(taken).name, 0, 0o755) / "kernels_0", 0, 0o755)
    code = folder / "hash.nbi"
    code.write_bytes(b"root's")
    code.chmod(0o644)
    assert play(shared, NUMBA_CACHE_DIR=image) == (str(folder.parent), [])

    (folder if left_open == "folder" else code).chmod(0o777)
    chosen, managed = play(shared, NUMBA_CACHE_DIR=image)

    assert chosen is not None and not chosen.startswith(str(image))
    assert managed == []
