"""What every server of Hadoop needs here: the jars, by hash; a configuration; a process on loopback.

Owns: the version, the artifacts, the form of the files in HADOOP_CONF_DIR.
Does not know: YARN, HDFS.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path

from embedded_kafka.child.processes import Child, spawn
from embedded_kafka.real.java import require_java
from embedded_kafka.real.maven import Artifact, fetch, pyspark_jars
from tests.support.quick_start import QUICK_START

HADOOP = "3.5.0"
"""The version of the Hadoop client in PySpark's own jars, which the servers use too."""

_CASTLE = "1.82"
ARTIFACTS = (
    Artifact("org.apache.hadoop", "hadoop-client-minicluster", HADOOP),
    # The ResourceManager signs its own certificates with these, and the minicluster leaves them to its user.
    Artifact("org.bouncycastle", "bcprov-jdk18on", _CASTLE),
    Artifact("org.bouncycastle", "bcpkix-jdk18on", _CASTLE),
)
JARS = {
    f"hadoop-client-minicluster-{HADOOP}.jar": "06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c",
    f"bcprov-jdk18on-{_CASTLE}.jar": "14cde2fdfaa8890480a8e5b67aceef0c90f96682c1e23c133bafdc9e0b3255ce",
    f"bcpkix-jdk18on-{_CASTLE}.jar": "bdc723e20834832ac6af136cb5b5ff05e43b71d4fa151cc6510d9212ee086e63",
    f"bcutil-jdk18on-{_CASTLE}.jar": "4420691958ad1c0ba275a6d6d8a6317adbdbdc9277055b6a72aa89c88cda8c7d",
}
"""What is taken of the artifacts, each with its SHA-256."""

FROM_PYSPARK = ("hadoop-client-", "slf4j-api", "log4j", "jcl-over-slf4j", "jsr305", "snappy-java")

_LOGGING = """\
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


@functools.cache
def servers() -> tuple[Path, ...]:
    """The jars of the servers; an AssertionError where one is not the jar that was pinned."""
    directory = fetch(f"yarn-{HADOOP}", ARTIFACTS, require_java())
    for name, expected in JARS.items():
        found = hashlib.sha256((directory / name).read_bytes()).hexdigest()
        assert found == expected, f"{directory / name} is not the pinned one: {found}"
    return tuple(directory / name for name in JARS)


def clients() -> list[Path]:
    """The jars of PySpark that a client of Hadoop needs, and that the servers use too."""
    return [jar for jar in sorted(pyspark_jars().glob("*.jar")) if jar.name.startswith(FROM_PYSPARK)]


def configure(directory: Path, files: Mapping[str, Mapping[str, str]]) -> None:
    """Write HADOOP_CONF_DIR: name -> settings, in XML, and where Hadoop's own log goes."""
    # A server that is started again has its directory already, and other ports.
    directory.mkdir(parents=True, exist_ok=True)
    for name, values in files.items():
        rows = (f"<property><name>{key}</name><value>{value}</value></property>" for key, value in values.items())
        (directory / f"{name}.xml").write_text(f"<configuration>{''.join(rows)}</configuration>")
    (directory / "log4j2.properties").write_text(_LOGGING)


def start(main_class: str, conf: Path, log: Path, cwd: Path, *words: str) -> Child:
    """Run a main class of the servers with this configuration."""
    path = ":".join(str(each) for each in (conf, *servers(), *clients()))
    java = require_java()
    command = [java.executable, "-Xmx256m", *QUICK_START.split(), "-cp", path, main_class, *words]
    # Containers of YARN begin with what is passed on of this: JAVA_HOME, and a PATH whose Python has no package.
    environ = {"PATH": "/usr/bin:/bin", "JAVA_HOME": str(java.home), "LANG": "C.UTF-8"}
    return spawn(command, log_path=log, env=environ, cwd=cwd)
