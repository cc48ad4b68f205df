"""Finds what a Python has of this package. The text of this module runs where the package may be missing: in the
executors' Python, and in the Python that Spark starts on the driver.

Owns: the names of the findings.
Does not know: Spark, what is wrong with a finding (`registration`).
Invariants:
- Importing and calling need nothing but the standard library of Python 3.6 or newer, and never raise.
"""

import json
import socket
import sys


def look() -> "dict[str, str | None]":
    """python (major.minor), executable and host; then either missing (the text of an ImportError), or other (the place
    of a package named connector that is not ours), or version, place, and cache (the kernels' directory, None where none
    is writable)."""
    found: dict[str, str | None] = {
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "executable": sys.executable,
        "host": socket.gethostname(),
    }
    try:
        import connector

        found["place"] = connector.__file__ or str(next(iter(connector.__path__), "an unknown place"))
        if "ExactlyOnceWriter" not in getattr(connector, "__all__", ()):
            found["other"] = found["place"]
            return found
        found["version"] = connector.__version__
        # What a task and the format itself import, with all that they need.
        import connector.spark.tasks
        import pyspark_kafka_eos  # noqa: F401
        from connector.records.jit import cache_directory

        cache = cache_directory()
        found["cache"] = None if cache is None else str(cache)
    except Exception as error:  # noqa: BLE001 -- a package that is half there fails in any way
        found["missing"] = f"{type(error).__name__}: {error}"
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(look()))
