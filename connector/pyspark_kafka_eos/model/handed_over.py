"""What the processes of a query hand to each other as pickles: read only by the version of this package that wrote it.

Owns: the version beside the bytes, what stands for a value of another version, the sentence.
Does not know: what is handed over, how the processes reach each other.
Invariants:
- Nothing of another version is interpreted, neither its classes nor its fields.
- Reading never fails. The first use of a value of another version does: what is raised while Spark reads a pickle
  reaches the user as a traceback, what is raised while a task or a commit runs as a sentence.

A driver with one wheel and executors with another one would else run until a field or a module is missing, or misread
what has another meaning by now. Nothing handed over outlives its query, so no version ever has to read another one's.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable
from typing import Any

from kafka_core.errors import WrongInstallation
from pyspark_kafka_eos.version import __version__


class HandedOver:
    """The base of everything that is pickled by one process of a query and read by another one."""

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        written = io.BytesIO()
        _Plain(written, pickle.HIGHEST_PROTOCOL).dump(self)
        return read, (__version__, written.getvalue())


class _Plain(pickle.Pickler):
    """Without a version of its own for each value inside."""

    def reducer_override(self, value: Any) -> Any:
        return object.__reduce_ex__(value, pickle.HIGHEST_PROTOCOL) if isinstance(value, HandedOver) else NotImplemented


class OtherVersion:
    """Stands for what another version wrote. Every use raises WrongInstallation."""

    def __init__(self, version: str) -> None:
        self._version = version

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            # Asked for by Python itself: whether it can be copied, and how.
            raise AttributeError(name)
        raise self.refusal()

    def refusal(self) -> WrongInstallation:
        """What every use raises."""
        theirs = str(vars(self).get("_version"))
        return WrongInstallation(
            f"driver and executors have different versions of this package: what this process (version {__version__}) was handed over is of "
            f"version {theirs[:40]}; it is not read, so nothing was written or decided by it; install one version on the driver and on all "
            "executors, then start the query again",
            {"here": __version__, "handed_over": theirs[:40]},
        )


def read(version: str, written: bytes) -> Any:
    """The value, or what stands for it where another version wrote it."""
    return pickle.loads(written) if version == __version__ else OtherVersion(version)


def refuse_other_versions(values: Iterable[object]) -> None:
    """WrongInstallation where one of the values is of another version."""
    for each in values:
        if isinstance(each, OtherVersion):
            raise each.refusal()
