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
    """python (major.minor), executable and host; then either missing (the text of an ImportError), or version, place,
    and cache (the kernels' directory, None where none is writable).
    """
    found: dict[str, str | None] = {
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "executable": sys.executable,
        "host": socket.gethostname(),
    }
    try:
        import pyspark_kafka_eos

        found["place"] = str(pyspark_kafka_eos.__file__)
        found["version"] = pyspark_kafka_eos.__version__
        # What a task and the format itself import, with all that they need.
        import pyspark_kafka_eos.spark.data_source
        import pyspark_kafka_eos.spark.sink.tasks
        from pyspark_kafka_eos.records.jit import cache_directory

        cache = cache_directory()
        found["cache"] = None if cache is None else str(cache)
    except Exception as error:  # noqa: BLE001 -- a package that is half there fails in any way
        found["missing"] = f"{type(error).__name__}: {error}"
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(look()))
