"""A real HDFS on loopback: one NameNode and one DataNode, each a process of its own; and libhdfs, by which Arrow reads
it.

Owns: their configuration, starting and ending them; building libhdfs of its C sources.
Does not know: Spark, checkpoints.
Invariants: nothing of it survives `close`, nor the end of the tests in any other way.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from embedded_kafka.child.ports import free_ports
from embedded_kafka.real.cache import cache_dir, making
from embedded_kafka.real.java import require_java
from tests.clusters.hadoop import clients, configure, start
from tests.clusters.packed import REQUIREMENTS, WITHIN_S
from tests.clusters.scene import eventually

SERVERS = "org.apache.hadoop.hdfs.server"
_SOURCES = "src/libhdfs"
_JAVAS_OWN = Path("lib", "server")


class Hdfs:
    """The servers, in `directory`; `uri` is what paths begin with."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        port, web = free_ports(2)
        self.uri, self._web = f"hdfs://127.0.0.1:{port}", f"127.0.0.1:{web}"
        self.conf = directory / "hadoop"
        anywhere = "127.0.0.1:0"
        configure(
            self.conf,
            {
                "core-site": {"fs.defaultFS": self.uri, "hadoop.tmp.dir": str(directory / "tmp")},
                "hdfs-site": {
                    "dfs.replication": "1",
                    "dfs.namenode.http-address": self._web,
                    "dfs.namenode.name.dir": (directory / "names").as_uri(),
                    "dfs.datanode.data.dir": (directory / "data").as_uri(),
                    "dfs.datanode.address": anywhere,
                    "dfs.datanode.ipc.address": anywhere,
                    "dfs.datanode.http.address": anywhere,
                },
            },
        )
        self._stack = contextlib.ExitStack()
        try:
            names = f"{SERVERS}.namenode.NameNode"
            log = directory / "names.log"
            made = start(names, self.conf, log, directory, "-format", "-nonInteractive")
            assert made.wait(int(WITHIN_S * 1000)) == 0, log.read_text()[-3000:]
            for number, (server, its_log) in enumerate(
                {names: log, f"{SERVERS}.datanode.DataNode": directory / "data.log"}.items()
            ):
                child = start(server, self.conf, its_log, directory)
                self._stack.callback(child.kill_tree)
                eventually(
                    server, lambda n=number: self._nodes() >= n, lambda c=child: c.poll() is None
                )  # fmt: skip
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End both."""
        self._stack.close()

    def names(self, path: str) -> list[str]:
        """The names in a directory, by a plain request; none where it does not exist."""
        try:
            with urllib.request.urlopen(f"http://{self._web}/webhdfs/v1{path}?op=LISTSTATUS", timeout=60) as answer:
                found = json.load(answer)["FileStatuses"]["FileStatus"]
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return []
        return [str(each["pathSuffix"]) for each in found]

    def _nodes(self) -> int:
        """How many DataNodes are alive, as the NameNode has it; -1 where it does not answer or takes no writes."""
        with contextlib.suppress(OSError):
            beans = f"http://{self._web}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
            with urllib.request.urlopen(beans, timeout=60) as answer:
                # Empty while the NameNode starts.
                for state in json.load(answer)["beans"]:
                    return int(state["NumLiveDataNodes"])
        return -1


def arrow_reads_hdfs() -> dict[str, str]:
    """The environment in which Arrow finds libhdfs, its Java and its jars."""
    return {
        "ARROW_LIBHDFS_DIR": str(libhdfs().parent),
        "JAVA_HOME": str(require_java().home),
        "CLASSPATH": ":".join(str(each) for each in clients()),
    }


def libhdfs() -> Path:
    """libhdfs.so, built once of the sources that requirements/libhdfs.txt pins. Where there is no C compiler, or a Java
    without its headers, the test is skipped and says so.
    """
    home = Path(require_java().home)
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or not (home / "include" / "jni.h").exists():
        pytest.skip(f"no libhdfs: it takes a C compiler ({compiler}) and {home / 'include' / 'jni.h'}")
    with making(cache_dir() / "libhdfs-of-pydoop-2.0.0") as directory:
        if directory is not None:
            _build(compiler, home, _sources(directory), directory / "libhdfs.so")
    return cache_dir() / "libhdfs-of-pydoop-2.0.0" / "libhdfs.so"


def _sources(directory: Path) -> Path:
    # pip asks a package's setup.py for its name before it hands it over, and this one uses what setuptools dropped in
    # version 81.
    constraint = directory / "constraint.txt"
    constraint.write_text("setuptools<81\n")
    environ = {**os.environ, "PIP_CONSTRAINT": str(constraint), "PIP_BUILD_CONSTRAINT": str(constraint)}
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--no-binary",
        ":all:",
        "--require-hashes",
    ]
    subprocess.run(
        [*command, "--requirement", REQUIREMENTS / "libhdfs.txt", "--dest", directory],
        check=True, timeout=WITHIN_S, env={**environ, "JAVA_HOME": str(require_java().home)},
    )  # fmt: skip
    (archive,) = directory.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
    return directory / archive.name.removesuffix(".tar.gz") / _SOURCES


def _build(compiler: str, java: Path, sources: Path, library: Path) -> None:
    headers = [sources, sources / "include", sources / "common", sources / "os", sources / "os" / "posix"]
    headers += [java / "include", java / "include" / "linux"]
    files = [each for part in (".", "common", "os/posix") for each in sorted((sources / part).glob("*.c"))]
    server = java / _JAVAS_OWN
    words = [*(f"-I{each}" for each in headers), *files, "-o", library, f"-L{server}", "-ljvm", "-lpthread"]
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-w", *words, f"-Wl,-rpath,{server}"], check=True)
