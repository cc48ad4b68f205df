"""Debian's packages (Ubuntu's are alike) for tests that need a program of them, unpacked and not installed.

Owns: how apt is asked in directories of its own.
Does not know: what is in the packages, where they are kept.
Invariants: nobody has to be root; the machine's packages and lists stay as they are.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

_WITHIN_S = 600


def unpack(into: Path, *packages: str, needed_too: bool = False) -> None:
    """Download packages, `needed_too`: with those that they need and the machine lacks, and unpack them into a
    directory.

    OSError without apt, subprocess.SubprocessError where it has no such package or reaches no mirror.
    """
    with tempfile.TemporaryDirectory(prefix="debian-") as name:
        where = Path(name)
        for each in ("lists/partial", "cache/archives/partial"):
            (where / each).mkdir(parents=True)
        apt = [
            "apt-get", "-qq", "-o", f"Dir::State::lists={where}/lists", "-o", f"Dir::Cache={where}/cache",
            "-o", "APT::Sandbox::User=", "-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=10",
        ]  # fmt: skip
        _run(where, *apt, "update")
        names = set(packages)
        if needed_too:
            planned = _run(where, *apt, "-s", "--no-install-recommends", "install", *packages)
            names |= {line.split()[1] for line in planned.splitlines() if line.startswith("Inst ")}
        _run(where, *apt, "download", *sorted(names))
        for package in sorted(where.glob("*.deb")):
            _run(where, "dpkg-deb", "-x", str(package), str(into))


def _run(where: Path, *words: str) -> str:
    done = subprocess.run(words, cwd=where, check=True, capture_output=True, text=True, timeout=_WITHIN_S)
    return done.stdout
