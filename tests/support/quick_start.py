"""How tests start Java and Spark's Python workers where they are to live for minutes at most.

    python -m tests.support.quick_start

keeps, in the environment that runs this, Spark's classes as Java has them after loading, and Spark's modules as Python
has them after compiling.

Owns: Java's flags, the file with the classes, the compiled modules in pyspark.zip.
Does not know: who starts what.
Invariant: a Java that the file is not for, or that runs something else than Spark, starts without it and says nothing.
"""

from __future__ import annotations

import os
import py_compile
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from embedded_kafka.real.java import require_java
from tests.support.spark_session import spark_session

if TYPE_CHECKING:
    import pyarrow as pa

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java's second compiler, and the threads of its usual collector, would cost more than all that the tests do: a Spark
that starts and runs six small queries takes 30 s of processor time with them and 14 s without, and 8 s with its classes
kept.
"""

CLASSES = "spark-classes.jsa"
"""In each environment with a Spark, because it is made of its jars and goes with them. 150 MB."""

# On a file that is not for it a Java warns on its output, where Spark's start script expects nothing but a command.
_SAY_NOTHING = "-Xlog:disable -Xlog:all=error:stderr"


def flags(environment: Path | str = sys.prefix) -> str:
    """For JDK_JAVA_OPTIONS, which every Java reads that is 9 or newer. `environment`: whose Spark it will run."""
    kept = Path(environment, CLASSES)
    if not kept.exists() or kept.stat().st_size == 0:
        return QUICK_START
    return f'{QUICK_START} "-XX:SharedArchiveFile={kept}" {_SAY_NOTHING}'


def keep_modules(archive: Path, directory: Path) -> None:
    """Put the modules of pyspark.zip, from which workers import PySpark, into it once more, compiled; `directory`: to
    work in.

    It comes without them, and Python keeps nothing that it compiles out of an archive: every worker took 0.85 s of
    processor time for that, four fifths of its start, and the tests start some hundreds of them.
    """
    with zipfile.ZipFile(archive) as found:
        names = found.namelist()
        if any(name.endswith(".pyc") for name in names):
            return
        found.extractall(directory)
    draft = archive.with_suffix(".draft")
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_STORED) as made:
        for name in names:
            made.write(directory / name, name)
            if name.endswith(".py") and "/tests/" not in name:
                py_compile.compile(
                    str(directory / name),
                    cfile=str(directory / f"{name}c"),
                    dfile=f"{archive}/{name}",
                    doraise=True,
                    # Never compared with its source, which stands in the same archive.
                    invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
                )
                made.write(directory / f"{name}c", f"{name}c")
    # A new file: what an installer shares between environments stays as it is.
    draft.replace(archive)


def keep_classes(directory: Path) -> None:
    """Have a Spark do what tests do, and keep the classes that it loaded."""
    os.environ.update(require_java().environ())
    kept = Path(sys.prefix, CLASSES)
    draft = kept.with_suffix(".draft")
    java_options = f"{QUICK_START} {_SAY_NOTHING} -XX:ArchiveClassesAtExit={draft}"
    spark = spark_session(directory, {"spark.driver.extraJavaOptions": java_options})
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    query = (
        stream.selectExpr("cast(value AS string) AS value")
        .repartition(2, "value")
        .mapInArrow(_same, "value string")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(directory / "output"))
    )
    query.awaitTermination()
    assert spark.read.parquet(str(directory / "output")).groupBy("value").count().count() == 10
    java = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    spark.stop()
    # It writes the file when it ends, and it ends with its input.
    java.stdin.close()
    java.wait()
    # A runtime that was made without classes of its own (jlink) writes none; an empty file has make not ask it again.
    draft.touch()
    draft.rename(kept)


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


if __name__ == "__main__":
    import pyspark

    with tempfile.TemporaryDirectory() as made:
        keep_modules(Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip", Path(made, "modules"))
        keep_classes(Path(made))
