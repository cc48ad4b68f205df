"""Two users of one machine, as root can be both: what one does in directories, and what the other manages against it.

Owns: the processes that run as another user, the attempts of the second one.
Does not know: what the first one does.

Both users are forks of one process, because the interpreter itself may stand where only root can read it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ONLY_ROOT = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can be two users")
VICTIM, SECOND = 64_001, 64_002
SOURCES = Path(__file__).parents[2] / "connector"

_PLAY = f"""
import json, os, socket, sys, tempfile
from pathlib import Path

VICTIM, SECOND = {VICTIM}, {SECOND}

def as_user(user, action):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([]); os.setresgid(user, user, user); os.setresuid(user, user, user)
            os.write(writer, json.dumps(action()).encode())
        except BaseException as error:
            os.write(writer, json.dumps([type(error).__name__, str(error)[:600]]).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text)

def attack(path):
    # What he manages to do in the directory and to it, and to each above it.
    done = []
    def attempt(name, action):
        try:
            action()
        except OSError:
            return
        done.append(name)
    here = Path(path)
    inside = [Path(root, name) for root, folders, files in os.walk(here) for name in (*folders, *files)]
    for place in (here, *inside):
        attempt(f"listed {{place}}", lambda: os.listdir(place))
        attempt(f"read {{place}}", lambda: place.open("rb").close())
        attempt(f"wrote into {{place}}", lambda: (place / "evil").write_bytes(b"evil"))
        attempt(f"wrote over {{place}}", lambda: place.open("ab").close())
        attempt(f"connected to {{place}}", lambda: socket.socket(socket.AF_UNIX).connect(str(place)))
    for each in (here, *here.parents[:-1]):
        attempt(f"replaced {{each}}", lambda: os.rename(each, f"{{each}}-away"))
    return done

tempfile.tempdir = sys.argv[1]
"""


def play(script: str, tmp: Path, *arguments: object, **environment: object) -> object:
    """What a script prints as JSON. It has `as_user`, `attack`, VICTIM and SECOND; `tmp` is its directory for temporary
    files, `arguments` begin at sys.argv[2].
    """
    kept = {
        name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "HOME")
    }
    places = {"PYTHONPATH": str(SOURCES), "HOME": "/nonexistent", **{k: str(v) for k, v in environment.items()}}
    done = subprocess.run(
        [sys.executable, "-c", _PLAY + script, str(tmp), *map(str, arguments)], env={**kept, **places}, cwd="/",
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@contextlib.contextmanager
def shared_folder() -> Iterator[Path]:
    """As /tmp is: everybody may make files in it, and rename only his own. Its path is short, for a socket's."""
    base = Path(tempfile.mkdtemp(prefix="two-"))
    try:
        base.chmod(0o711)
        folder = base / "tmp"
        folder.mkdir()
        folder.chmod(0o1777)
        yield folder
    finally:
        shutil.rmtree(base)


def owned(folder: Path, user: int, mode: int) -> Path:
    """A new directory of this user."""
    folder.mkdir()
    os.chown(folder, user, user)
    folder.chmod(mode)
    return folder
