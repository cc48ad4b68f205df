"""`make security`: every way to log in x every part of the product, on Apache Kafka and on the embedded broker.

    .venv/bin/python -m tests.security [--write] [--broker 4.4.0] [--way "SASL_SSL, PLAIN"]

One Spark for all of them, one broker after another. Exits with 1 where a cell failed; `--write` then leaves the page as
it is.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from embedded_kafka.real.java import require_java
from tests.security import cells, embedded, kdc, real, ways
from tests.security.kdc import NoKerberos, Realm
from tests.security.page import PAGE, Cell, page, summary
from tests.security.ways import Closed, Door
from tests.support.quick_start import flags
from tests.support.spark_session import SMALL, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EMBEDDED = "embedded"
_NOT_STARTED = ("Python worker failed to connect back", "CANNOT_OPEN_SOCKET")
"""Spark waits 10 s for a Python worker, and no setting changes that. On a busy machine a worker comes later, and
nothing of the product has run then.
"""
_TRIES = 3


@contextmanager
def started(folder: Path) -> Iterator[SparkSession]:
    """Spark in local mode."""
    os.environ.update(require_java().environ())
    os.environ.setdefault("JDK_JAVA_OPTIONS", flags())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark_kafka_eos import register

    settings = {
        **SMALL,
        "spark.app.name": "security",
        # A busy machine accepts a connection by TCP later than PySpark waits for it. Before 4.1 Spark does not know the
        # name.
        "spark.python.unix.domain.socket.enabled": "true",
    }
    spark = spark_session(folder, settings, log_level="OFF")
    register(spark)
    try:
        yield spark
    finally:
        spark.stop()


def through(spark: SparkSession, broker: str, door: Door | Closed, folder: Path) -> Iterator[Cell]:
    """Every use of one door."""
    if isinstance(door, Closed):
        for use in cells.USES:
            yield Cell(broker, door.way, use, None, door.why)
        return
    folder.mkdir(parents=True, exist_ok=True)
    scene = cells.prepared(spark, door, folder)
    for use, play in cells.USES.items():
        began = time.monotonic()
        for left in reversed(range(_TRIES)):
            try:
                fine, said = True, play(scene)
            except Exception as error:  # noqa: BLE001 -- whatever it is, it stands in the cell
                fine, said = False, f"{type(error).__name__}: {error}"
            if fine or not left or not any(each in said for each in _NOT_STARTED):
                break
            _note(f"{broker}, {door.way}, {use}: Spark started no Python worker in time; once more")
        yield Cell(broker, door.way, use, fine, said, time.monotonic() - began)


def realm_of(stack: ExitStack, folder: Path, wanted: list[str]) -> Realm | NoKerberos:
    """A KDC until the stack ends, or why there is none. Before Spark: its workers find gssapi and krb5.conf by the
    environment.
    """
    if ways.KERBEROS not in wanted:
        return NoKerberos("not asked for")
    try:
        kdc.offer_gssapi()
        return stack.enter_context(kdc.running(folder / "kdc", ways.USER))
    except NoKerberos as why:
        return why


def played(
    spark: SparkSession, brokers: list[str], wanted: list[str], folder: Path, realm: Realm | NoKerberos
) -> Iterator[Cell]:
    """All cells, one broker after another."""
    for version in real.VERSIONS:
        if version in brokers:
            own = folder / version
            own.mkdir()
            with real.opened(version, own, realm) as doors:
                for number, door in enumerate(doors):
                    if door.way in wanted:
                        yield from through(spark, f"Apache Kafka {version}", door, own / str(number))
    if _EMBEDDED in brokers:
        for number, way in enumerate(each for each in ways.NAMES if each in wanted):
            own = folder / f"{_EMBEDDED}-{number}"
            own.mkdir()
            with embedded.opened(way, own) as door:
                yield from through(spark, "Embedded broker", door, own / "cells")


def _say(cell: Cell) -> None:
    state = "not possible" if cell.fine is None else "ok" if cell.fine else "FAILED"
    _note(f"{cell.broker}, {cell.way}, {cell.use}: {state}, {cell.took_s:.1f} s: {cell.said}")


def _note(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """1 where a cell failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.security", description=(__doc__ or "").splitlines()[0])
    everywhere = [*real.VERSIONS, _EMBEDDED]
    parser.add_argument("--write", action="store_true", help="put the table into docs/design")
    parser.add_argument("--broker", action="append", choices=everywhere, help="only this one")
    parser.add_argument("--way", action="append", choices=ways.NAMES, help="only this one")
    given = parser.parse_args()
    warnings.simplefilter("ignore", DeprecationWarning)
    found: list[Cell] = []
    began = time.monotonic()
    wanted = given.way or list(ways.NAMES)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="security-")))
        realm = realm_of(stack, folder, wanted)
        spark = stack.enter_context(started(folder))
        for each in played(spark, given.broker or everywhere, wanted, folder, realm):
            found.append(each)
            _say(each)
        version = spark.version
    sys.stdout.write(f"{time.monotonic() - began:.0f} s. {summary(found)}\n")
    failed = any(each.fine is False for each in found)
    if given.write and not failed:
        PAGE.write_text(page(found, list(cells.USES), rows=cells.ROWS, spark=version))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
