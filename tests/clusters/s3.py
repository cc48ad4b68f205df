"""S3 on loopback: moto's server in an environment of its own, and what Hadoop and Arrow need to use it.

Owns: the server's process and its bucket, the settings of both sides.
Does not know: checkpoints.
Invariants: nothing of it survives `close`. moto is in no environment of the product: requirements/clusters.txt pins it.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

from embedded_kafka.child.ports import free_ports
from embedded_kafka.child.processes import spawn
from embedded_kafka.real.java import require_java
from embedded_kafka.real.maven import Artifact, fetch
from tests.clusters.hadoop import HADOOP
from tests.clusters.packed import pip_environ, wheels
from tests.clusters.scene import eventually

BUCKET = "checkpoints"
KEY, SECRET, REGION = "nobody", "nothing", "us-east-1"


class S3:
    """The server, in `directory`; `uri` is what paths begin with. It keeps everything in memory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        packages = directory / "packages"
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--target", packages, "moto[s3]", "flask", "flask-cors"],
            check=True, env={**os.environ, **pip_environ(wheels())},
        )  # fmt: skip
        (port,) = free_ports(1)
        self._address, self.uri = f"http://127.0.0.1:{port}", f"s3a://{BUCKET}"
        self._stack = contextlib.ExitStack()
        try:
            child = spawn(
                [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)],
                log_path=directory / "moto.log", cwd=directory,
                env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONPATH": str(packages)},
            )  # fmt: skip
            self._stack.callback(child.kill_tree)
            eventually("moto's server", lambda: self._made(), lambda: child.poll() is None)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End it."""
        self._stack.close()

    def keys(self, prefix: str) -> list[str]:
        """The keys of the bucket that begin with this, by a plain request."""
        with urllib.request.urlopen(f"{self._address}/{BUCKET}?list-type=2&prefix={prefix}", timeout=60) as answer:
            return re.findall(r"<Key>([^<]*)</Key>", answer.read().decode())

    @property
    def of_spark(self) -> dict[str, str]:
        """What Spark's session has for S3."""
        jars = fetch(f"hadoop-aws-{HADOOP}", (Artifact("org.apache.hadoop", "hadoop-aws", HADOOP),), require_java())
        settings = {
            "endpoint": self._address, "endpoint.region": REGION, "path.style.access": "true",
            "connection.ssl.enabled": "false", "access.key": KEY, "secret.key": SECRET,
        }  # fmt: skip
        # On the class path, not as spark.jars: Spark copies those, and these have 650 MB.
        return {"spark.driver.extraClassPath": f"{jars}/*"} | {
            f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()
        }

    @property
    def of_python(self) -> dict[str, str]:
        """The environment of the driver's Python, for Arrow."""
        return {
            "AWS_ENDPOINT_URL": self._address, "AWS_REGION": REGION, "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_EC2_METADATA_DISABLED": "true",
        }  # fmt: skip

    def _made(self) -> bool:
        request = urllib.request.Request(f"{self._address}/{BUCKET}", method="PUT")
        with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status == 200
        return False
