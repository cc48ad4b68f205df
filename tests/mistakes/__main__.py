"""Makes every mistake and prints what each is told: `python -m tests.mistakes [--write]`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from embedded_kafka.embedded import EmbeddedKafka
from tests.mistakes.cases import MISTAKES
from tests.mistakes.page import PAGE, table
from tests.mistakes.scene import Scene, told
from tests.support.quick_start import flags
from tests.support.spark_session import spark_session


def main() -> int:
    """Make them all, one after the other."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(prog="python -m tests.mistakes", description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="put the table into evidence/mistakes.md")
    arguments = parser.parse_args()
    os.environ.setdefault("JDK_JAVA_OPTIONS", flags())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    seen = []
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka() as broker:
        spark = spark_session(folder)
        scene = Scene(spark, broker.bootstrap_servers, Path(folder))
        # The first query of a session starts its workers.
        scene.write()
        for mistake in MISTAKES:
            seen.append((mistake, told(lambda mistake=mistake: mistake.act(scene))))  # type: ignore[misc]
        spark.stop()
    text = table(seen)
    print(text)  # noqa: T201  a command's output
    if arguments.write:
        PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
