"""The environment that is shipped to a cluster, made by the commands of docs/deploying.md.

Owns: the wheels that pip takes, by the hashes of the lock; the two layouts of an archive.
Does not know: the cluster.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from embedded_kafka.real.cache import cache_dir, making
from tests.clusters.page import block

REQUIREMENTS = Path(__file__).parents[2] / "requirements"
WITHIN_S = 900.0
"""pip, for 110 MB from a slow index. It takes half a minute here."""

_ENTRY = re.compile(r"^([A-Za-z0-9._-]+)==.*(?:\n[ #].*)*", re.MULTILINE)
_NOT_SHIPPED = (
    "test",
    "idlelib",
    "ensurepip",
    "lib2to3",
    "tkinter",
    "config-*",
    "site-packages",
)


def required(name: str = "pyspark-kafka-eos") -> set[str]:
    """All that the package needs where it runs, without its extras, as pip would resolve it here."""
    found: set[str] = set()

    def add(distribution: str) -> Iterator[str]:
        for text in importlib.metadata.requires(distribution) or []:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                yield canonicalize_name(requirement.name)

    waiting = [name]
    while waiting:
        new = set(add(waiting.pop())) - found
        found |= new
        waiting += new
    return found


def wheels() -> Path:
    """A directory with what `required` names and with requirements/clusters.txt, fetched once by the hashes of the
    locks.
    """
    package, tools = (REQUIREMENTS / f"{name}.txt" for name in ("test", "clusters"))
    wanted = required()
    locked = [each[0] for each in _entries(package) if canonicalize_name(each[1]) in wanted]
    locked += [each[0] for each in _entries(tools) if canonicalize_name(each[1]) not in wanted]
    digest = hashlib.sha256("\n".join([sys.version, *locked]).encode()).hexdigest()[:12]
    final = cache_dir() / "wheels" / digest
    with making(final) as directory:
        if directory is not None:
            lock = directory / "lock.txt"
            lock.write_text("\n".join(locked) + "\n")
            command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--require-hashes"]
            subprocess.run([*command, "--requirement", lock, "--wheel-dir", directory], check=True, timeout=WITHIN_S)
    return final


def _entries(lock: Path) -> Iterator[re.Match[str]]:
    return _ENTRY.finditer(lock.read_text())


def pip_environ(*directories: Path) -> dict[str, str]:
    """pip takes packages from these directories, and from nowhere else."""
    places = " ".join(str(each) for each in directories)
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": places, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def python_on_path(directory: Path) -> Path:
    """A directory for PATH whose python3 is the one of this version, without any package."""
    (directory / "bin").mkdir()
    (directory / "bin" / "python3").symlink_to(os.path.realpath(sys.executable))
    return directory / "bin"


def pack(directory: Path, wheel: Path) -> None:
    """Run the page's commands in `directory`: afterwards it has environment/, environment.tar.gz and the job's
    files.
    """
    environ = {
        "PATH": f"{python_on_path(directory)}:/usr/bin:/bin", "HOME": str(directory), "LANG": "C.UTF-8",
        **pip_environ(wheels(), wheel.parent),
    }  # fmt: skip
    ended = subprocess.run(
        ["bash", "-euc", block("Pack the environment")], cwd=directory, env=environ, capture_output=True, text=True,
        timeout=WITHIN_S, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, f"{ended.stdout[-2000:]}\n{ended.stderr[-2000:]}"


def pack_as_conda_pack(environment: Path, archive: Path, work: Path) -> None:
    """An archive of conda-pack's layout with the packages of `environment`: Python itself is in it, at its top."""
    root = work / "conda"
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    stdlib = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(stdlib, root / "lib" / version, ignore=shutil.ignore_patterns(*_NOT_SHIPPED))
    for library in Path(sysconfig.get_config_var("LIBDIR")).glob("libpython*.so*"):
        shutil.copy2(library, root / "lib" / library.name)
    (root / "bin").mkdir()
    shutil.copy2(os.path.realpath(sys.executable), root / "bin" / version)
    for name in ("python", "python3"):
        (root / "bin" / name).symlink_to(version)
    packages = environment / "lib" / version / "site-packages"
    shutil.copytree(packages, root / "lib" / version / "site-packages")
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        for entry in sorted(root.iterdir()):
            packed.add(entry, entry.name)
    shutil.rmtree(root)
