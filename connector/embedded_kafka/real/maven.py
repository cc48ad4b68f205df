"""Jars from Maven, resolved by the Ivy that every PySpark contains, kept in the cache.

Owns: which artifacts make up a Kafka of a given version, and where they are stored.
Does not know: how they are run.
Why Ivy itself and not `spark.jars.packages`: Spark's resolver silently leaves out jars that Spark already has
(scala-library, slf4j, log4j), and a broker in its own JVM then lacks those.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from embedded_kafka.child.errors import LocalError
from embedded_kafka.real.cache import cache_dir, making
from embedded_kafka.real.java import Java
from embedded_kafka.real.pins import require_pinned

# A first download takes 1-2 minutes where each request takes 0.2 s.  A tenth of this fails on a slow line, and nobody
# wants to wait ten times as long for a line that hangs.
_DOWNLOADED_WITHIN_S = 1800

# Ivy's own default repository is Maven Central.  DEFAULT_ARTIFACT_REPOSITORY is the variable that also points
# Spark's resolver to a company's mirror.
_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="maven"/>
  <caches defaultCacheDir="{cache}" lockStrategy="artifact-lock-nio"/>
  <resolvers><ibiblio name="maven" m2compatible="true" useMavenMetadata="false"{root}/></resolvers>
</ivysettings>
"""
_MODULE = """\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="embedded-kafka" module="local"/>
  <configurations><conf name="default"/></configurations>
  <dependencies defaultconf="default->runtime,master">
    {dependencies}
    {exclusions}
  </dependencies>
</ivy-module>
"""

# Kafka Connect with its web server: half of all the jars, 40 s of a first download, and only a tool that lists
# Connect's plug-ins uses them.  (group, module) as regular expressions.
_EXCLUSIONS = (
    (r"org\.apache\.kafka", r"connect-.*"),
    (
        r"org\.eclipse\.jetty.*|org\.glassfish.*|jakarta.*|javax.*|com\.fasterxml\.jackson\.(jakarta|jaxrs).*",
        r".*",
    ),
)


@dataclass(frozen=True)
class Artifact:
    """A Maven artifact by its coordinates. `classifier`: another jar of it, wanted beside the main one."""

    group: str
    name: str
    version: str
    classifier: str = ""

    @property
    def dependency(self) -> str:
        """As Ivy's XML has it."""
        jar = f'<artifact name="{self.name}" type="jar" ext="jar"'
        jars = f'{jar}/>{jar} m:classifier="{self.classifier}"/>' if self.classifier else ""
        return f'<dependency org="{self.group}" name="{self.name}" rev="{self.version}">{jars}</dependency>'


def kafka_artifacts(version: str) -> tuple[Artifact, ...]:
    """The broker, its command-line tools, and a logger.

    Before 4.0 the tools include a logger (log4j 1), and with a second one on the class path it would be
    undefined which is used. Since 4.0 they include none; Kafka uses slf4j-api 1.7, for which 1.7.36 is the
    last logger.
    """
    kafka = tuple(Artifact("org.apache.kafka", name, version) for name in ("kafka_2.13", "kafka-tools"))
    return kafka if int(version.split(".")[0]) < 4 else (*kafka, Artifact("org.slf4j", "slf4j-simple", "1.7.36"))


def tiered_storage_artifacts(version: str) -> tuple[Artifact, ...]:
    """What Kafka's own tests keep remote segments in: a store that is a local directory."""
    names = ("kafka-storage", "kafka-clients")
    return tuple(Artifact("org.apache.kafka", name, version, "test") for name in names)


def fetch(name: str, artifacts: Iterable[Artifact], java: Java) -> Path:
    """The directory with the artifacts' jars and those they need; downloads them at the first call.

    `name` is the directory's name in the cache: one name, one set of artifacts.  A failed or interrupted download
    leaves nothing under that name.  Raises LocalError with Ivy's own output when an artifact cannot be downloaded, and
    where jars of a known name are not the pinned ones.
    """
    cache = cache_dir()
    jars = cache / "jars" / name
    with making(jars) as directory:
        if directory is not None:
            _retrieve(directory, artifacts, java, cache)
    require_pinned(jars)
    return jars


def pyspark_jars() -> Path:
    """The directory of the jars in the installed PySpark."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise LocalError("pyspark is not installed: its jars are needed to fetch and to start servers")
    return Path(spec.origin).parent / "jars"


def _retrieve(directory: Path, artifacts: Iterable[Artifact], java: Java, cache: Path) -> None:
    ivy = next(pyspark_jars().glob("ivy-*.jar"), None)
    if ivy is None:
        raise LocalError(f"No ivy-*.jar in {pyspark_jars()}")
    work = directory.with_name(directory.name + ".ivy")
    work.mkdir(exist_ok=True)
    mirror = os.environ.get("DEFAULT_ARTIFACT_REPOSITORY")
    settings, module = work / "settings.xml", work / "ivy.xml"
    settings.write_text(_SETTINGS.format(cache=cache / "ivy", root=f' root="{mirror}"' if mirror else ""))
    exclusions = (f'<exclude org="{group}" module="{name}" matcher="regexp"/>' for group, name in _EXCLUSIONS)
    module.write_text(
        _MODULE.format(
            dependencies="\n    ".join(it.dependency for it in artifacts),
            exclusions="\n    ".join(exclusions),
        )
    )
    answer = subprocess.run(
        [
            java.executable,
            *("-jar", ivy),
            *("-settings", settings),
            *("-ivy", module),
            *("-types", "jar", "bundle"),
            *("-retrieve", f"{directory}/[artifact]-[revision](-[classifier]).[ext]"),
            "-warn",
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_DOWNLOADED_WITHIN_S,
        check=False,
    )
    if answer.returncode != 0 or not any(directory.glob("*.jar")):
        raise LocalError(f"Could not fetch {directory.name}:\n{answer.stdout[-4000:]}{answer.stderr[-4000:]}")
