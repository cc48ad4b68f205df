"""Which bytes a downloaded jar has to have: SHA-256 of each, as it was when the tests last ran with it.

Owns: the file `jars.sha256`, in the form of sha256sum; the judgement of a directory by it.
Does not know: where jars come from.
Invariants:
- A directory of a known name has exactly the jars of the file: its class path is all of it, so one jar more is code
  that runs.
- A directory whose name the file does not have (another version of Kafka) is taken as it was downloaded.

Judged at each use, not at the download alone: the directory is in the user's cache, and lives for months. 44 MB take
0.04 s.
"""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from embedded_kafka.child.errors import LocalError

log = logging.getLogger(__name__)

PINS = Path(__file__).with_name("jars.sha256")
"""`<hash>  <directory>/<jar>`, a line each: `sha256sum -c` in the cache's folder jars/ reads it, too."""


def require_pinned(directory: Path) -> None:
    """LocalError where the jars are not the pinned ones; nothing of them has run then."""
    known = _pins().get(directory.name)
    if known is None:
        log.info("the jars of %s have no pinned hashes; they are taken as they were downloaded", directory.name)
        return
    found = hashes([directory])[directory.name]
    wrong = sorted(name for name in known.keys() | found.keys() if known.get(name) != found.get(name))
    if wrong:
        raise LocalError(
            f"{directory} does not have the jars that {directory.name} was tested with: {', '.join(wrong[:5])}"
            f"{' and others' if len(wrong) > 5 else ''}; nothing of it was run; remove the directory, and the jars are fetched "
            "anew; where they differ again, your mirror of Maven has others"
        )


def hashes(directories: Iterable[Path]) -> dict[str, dict[str, str]]:
    """Name of each directory -> its jars -> SHA-256 in hex."""
    return {each.name: {jar.name: _sha256(jar) for jar in sorted(each.glob("*.jar"))} for each in directories}


def text_of(found: Mapping[str, Mapping[str, str]]) -> str:
    """The file with these hashes."""
    return "".join(
        f"{sha256}  {directory}/{jar}\n" for directory, jars in sorted(found.items()) for jar, sha256 in jars.items()
    )


@functools.cache
def _pins() -> Mapping[str, Mapping[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for line in PINS.read_text().splitlines():
        sha256, _, path = line.partition("  ")
        directory, _, jar = path.partition("/")
        found.setdefault(directory, {})[jar] = sha256
    return found


def _sha256(path: Path) -> str:
    # Not file_digest, which Python 3.10 lacks; a jar has a few megabytes.
    return hashlib.sha256(path.read_bytes()).hexdigest()
