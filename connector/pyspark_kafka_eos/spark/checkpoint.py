"""A query's checkpoint, read without Spark: Spark commits a Python sink's batches in a process that has no session.

Owns: where a checkpoint is, which query it belongs to, which batch is being run.
Does not know: the form of the offset log (`offset_log`), the use of its offsets.
Invariants:
- An unreadable file is an error raised before anything is written, never "no offsets".
"""

from __future__ import annotations

import functools
import json
import logging
import os

import pyarrow as pa
from pyarrow import fs

from kafka_core.errors import OptionsError, PipelineConflict
from pyspark_kafka_eos.model import LoggedOffsets
from pyspark_kafka_eos.spark.offset_log import parse_offsets, unreadable

log = logging.getLogger(__name__)

_SAME_AS = {"s3a": "s3", "s3n": "s3"}
"""Hadoop's names of schemes -> Arrow's."""

_MOST_OPEN = 256
"""Checkpoints whose file systems a process keeps, as many as the metrics keep queries. Spark gives the queries of a
driver in turn to one process: with fewer than there are queries, each batch would connect anew.
"""

_WAY_OUT = (
    "give the sink the query's own checkpointLocation in a form that Spark's Python on the driver can read (a local path, "
    "file:, s3:, gs:, abfs:, hdfs:, or a volume), or use foreachBatch(ExactlyOnceWriter(options)), which reads it through Spark"
)


class Checkpoint:
    """One query's checkpoint. Every method but `require` reads it; OptionsError where this process cannot."""

    def __init__(self, location: str) -> None:
        self.location = location

    def query_id(self) -> str:
        """The id of the query that the checkpoint belongs to."""
        try:
            return str(json.loads(self._read("metadata"))["id"])
        except (OSError, pa.ArrowException, ValueError, KeyError, TypeError) as error:
            raise OptionsError(
                f"the checkpoint {self.location} has no query's metadata when read from Spark's Python on "
                f"the driver ({type(error).__name__}); nothing was written; {_WAY_OUT}"
            ) from error

    def newest_batch(self) -> int:
        """The batch that Spark is running: it logs a batch's offsets before it runs it."""
        files, root = _open(self.location)
        try:
            entries = files.get_file_info(fs.FileSelector(f"{root}/offsets", allow_not_found=True))
        except (OSError, pa.ArrowException) as error:
            raise unreadable(f"{self.location}/offsets", -1, error) from error
        # The directory also holds checksums and files still being written.
        batches = [int(entry.base_name) for entry in entries if entry.base_name.isdigit()]
        if not batches:
            raise OptionsError(
                f"the checkpoint {self.location} has no batch in its offset log; nothing was written. Spark logs a "
                "batch's source offsets before the batch runs only with micro-batches: leave out "
                "trigger(continuous=...) and trigger(realTime=...)"
            )
        return max(batches)

    def source_offsets(self, batch_id: int) -> LoggedOffsets:
        """The sources' offsets at the end of a batch, in the form that `offset_log.read_offsets` returns."""
        path = f"{self.location.rstrip('/')}/offsets/{batch_id}"
        try:
            text = self._read(f"offsets/{batch_id}")
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            raise unreadable(path, batch_id, error) from error
        return parse_offsets(text, path)

    def earlier_offsets(self, batch_id: int) -> LoggedOffsets | None:
        """The same of a batch before the one that Spark runs; None where the file cannot be read, as Spark deletes old
        ones.
        """
        try:
            text = self._read(f"offsets/{batch_id}")
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            log.info("the offset log's batch %d is not compared with the ledger: %s", batch_id, error)
            return None
        return parse_offsets(text, f"{self.location.rstrip('/')}/offsets/{batch_id}")

    def require(self, query_id: str, batch_id: int, seen: tuple[str | None, str | None]) -> None:
        """PipelineConflict where a task has `seen` another query or batch than this checkpoint names."""
        if seen != (query_id, str(batch_id)):
            raise PipelineConflict(
                f"the checkpoint {self.location} is not the one that Spark uses for this query: it is at "
                f"batch {batch_id} of query {query_id}, Spark runs batch {seen[1]} of query {seen[0]}; "
                f"nothing was written; {_WAY_OUT}",
                {"checkpoint": self.location, "batch": batch_id},
            )

    def _read(self, name: str) -> str:
        files, root = _open(self.location)
        with files.open_input_stream(f"{root}/{name}") as stream:
            return bytes(stream.read()).decode()


@functools.lru_cache(maxsize=_MOST_OPEN)
def _open(location: str) -> tuple[fs.FileSystem, str]:
    """The file system and the checkpoint's path in it. Cached: connecting takes longer than reading."""
    scheme, colon, rest = location.rstrip("/").partition(":")
    scheme = scheme.lower()
    if not colon or "/" in scheme:
        return fs.LocalFileSystem(), os.path.abspath(location)
    if scheme == "file":
        return fs.LocalFileSystem(), _local(rest)
    if scheme == "dbfs":
        path = _local(rest)
        return fs.LocalFileSystem(), path if path.startswith("/Volumes/") else f"/dbfs{path}"
    try:
        files, path = fs.FileSystem.from_uri(f"{_SAME_AS.get(scheme, scheme)}:{rest}")
    except (OSError, pa.ArrowException, ValueError, ImportError) as error:
        raise OptionsError(
            f"the checkpoint {location} cannot be read from Spark's Python on the driver ({error}); nothing was written; "
            f"{_WAY_OUT}"
        ) from error
    return files, path.rstrip("/")


def _local(rest: str) -> str:
    return "/" + rest.lstrip("/")
