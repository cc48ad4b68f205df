"""`register(spark)`: registers source and sink, and checks what driver and executors have before a query starts.

Owns: the order of the checks, and one sentence for each way in which an installation is wrong.
Does not know: Kafka.
Invariants:
- Nothing is registered before every check has passed.
- The check of the executors needs nothing of this package there.

Spark looks up formats with the Python that the environment of the driver's JVM names (PYSPARK_DRIVER_PYTHON,
PYSPARK_PYTHON, else python3), once, and that environment cannot be changed while the JVM runs. A registered format is
run with the Python of the session instead, on the driver and on the executors. In local mode the session's Python is
set to the one that runs this, unless PYSPARK_PYTHON names another: it is the same machine.
"""

from __future__ import annotations

import json
import logging
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from kafka_core.errors import OptionsError, WrongInstallation
from pyspark_kafka_eos.version import __version__

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

Found = dict[str, str | None]

_ANSWERS_WITHIN_S = 120
"""How long the driver's Python may take to import the package: a second, with ten processes for each core half a
minute. A file system that hangs never answers. Half could refuse a sound installation, double only delays the error.
"""

_THIS_PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"

_HIDDEN_IN_OPTIONS, _HIDDEN_BY_DEFAULT = "spark.sql.redaction.options.regex", "(?i)url"
"""Spark's setting of a session, beside spark.redaction.regex, which is the application's."""

_HIDDEN_IN_TEXTS, _HIDDEN_BY_APPLICATION = "spark.sql.redaction.string.regex", "spark.redaction.string.regex"
"""The same for whole texts, such as the statements that a server of Spark Connect shows; nothing by default."""

_DRIVER, _EXECUTORS = "driver", "executors"

_OR_WITHOUT = ", or call register(spark, require_cache=False)"


def register(spark: SparkSession, *, require_cache: bool = True) -> None:
    """Register `format("kafka_eos")`, source and sink, with this session; call it before the first query.

    Before that: starts the Python of the session on the driver and, in one small Spark job, on one executor. Both must
    have this package, in this version, with all that it needs, on this minor version of Python. Then compiles the
    kernels on the driver (3 s of CPU, once for each machine). Executors on other machines compile them at their first
    record; `kafka-eos warm` does it where their image is built.

    `require_cache=False`: a machine without a writable directory for compiled kernels is only logged.

    Secrets in options are hidden in the session's plans from then on (`spark.sql.redaction.options.regex` is extended);
    on Spark Connect in the texts of its statements, too (`spark.sql.redaction.string.regex`).

    WrongInstallation, with what is wrong and what to do; nothing is registered then. OptionsError for what is not a
    running session. May be called again, and from any thread. It waits for an executor as every job does.
    """
    context = _context_of(spark)
    if context is not None:
        _use_this_python(context)
        _judge(_look_on_driver(context), _DRIVER, context)
    found = _look_on_executor(spark, context)
    _judge(found, _EXECUTORS, context)

    from pyspark_kafka_eos.records.warm import NO_CACHE, warm

    directory = warm()
    for where, cache in ((_DRIVER, directory), (_EXECUTORS, found["cache"])):
        if cache is None and require_cache:
            raise WrongInstallation(f"on the {where} {NO_CACHE}{_OR_WITHOUT}", {"where": where})
        if cache is None:
            log.warning("on the %s %s", where, NO_CACHE)
    _register_with(spark)
    _hide_secrets(spark)
    if context is not None:
        from pyspark_kafka_eos.spark.sink.attempt_answers import answer

        answer(context)
    log.info(
        "kafka_eos %s is registered; kernels are kept in %s. On other machines, kafka-eos warm compiles them before "
        "the first record",
        __version__, directory,
    )  # fmt: skip


def _hide_secrets(spark: SparkSession) -> None:
    """Have Spark hide all secrets in plans and statements: a write that is refused for one is in the event log before
    that. A server of Spark Connect shows every option of a statement, whatever its name.
    """
    from pyspark_kafka_eos.options.login.in_clear import HIDDEN_IN_STATEMENTS, NOT_HIDDEN

    hidden = spark.conf.get(_HIDDEN_IN_OPTIONS, _HIDDEN_BY_DEFAULT) or _HIDDEN_BY_DEFAULT
    if NOT_HIDDEN not in hidden:
        spark.conf.set(_HIDDEN_IN_OPTIONS, f"{hidden}|{NOT_HIDDEN}")
    if not _is_remote(spark):
        return
    texts = spark.conf.get(_HIDDEN_IN_TEXTS, None) or spark.conf.get(_HIDDEN_BY_APPLICATION, None)
    if HIDDEN_IN_STATEMENTS not in (texts or ""):
        spark.conf.set(_HIDDEN_IN_TEXTS, "|".join(filter(None, (texts, HIDDEN_IN_STATEMENTS))))


def _register_with(spark: SparkSession) -> None:
    from pyspark.errors import AnalysisException

    from pyspark_kafka_eos import DefaultSource

    try:
        spark.dataSource.register(DefaultSource)
    except AnalysisException as error:
        # Spark 4.0 refuses a name that it has found by itself in the Python just checked; 4.1 and later replace it.
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise


def _context_of(spark: SparkSession) -> SparkContext | None:
    """The context of a classic session; None on Spark Connect, which has none."""
    if not hasattr(spark, "dataSource"):
        raise OptionsError(f"register needs a SparkSession of pyspark 4.0 or newer, not a {type(spark).__name__}")
    context = None if _is_remote(spark) else spark.sparkContext
    # A stopped session of Spark Connect would wait for an answer.
    stopped = getattr(spark, "is_stopped", False) if context is None else context._jsc is None
    if stopped:
        raise OptionsError("this Spark session was stopped: make a new one before register(spark)")
    return context


def _is_remote(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def _use_this_python(context: SparkContext) -> None:
    master = context.master or ""
    local = master == "local" or master.startswith("local[")
    if local and "PYSPARK_PYTHON" not in os.environ and sys.executable:
        context.pythonExec = sys.executable


def _probe() -> str:
    text = pkgutil.get_data("pyspark_kafka_eos.spark", "probe.py")
    assert text is not None
    return text.decode()


def _look_on_driver(context: SparkContext) -> Found:
    """What the Python finds that Spark starts on the driver to plan a read, to read offsets and to commit."""
    python = context.pythonExec
    if shutil.which(python) is None:
        _cannot_run(python, _DRIVER, context)
    jvm = context._jvm
    assert jvm is not None
    # As Spark's own workers find pyspark.
    path = [jvm.PythonUtils.sparkPythonPath(), os.environ.get("PYTHONPATH", "")]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}
    try:
        ended = subprocess.run(
            [python, "-"], input=_probe(), capture_output=True, text=True, check=True, env=environ,
            timeout=_ANSWERS_WITHIN_S,
        )  # fmt: skip
        found: Found = json.loads(ended.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        _cannot_run(python, _DRIVER, context, str(error))
    return found


def _look_on_executor(spark: SparkSession, context: SparkContext | None) -> Found:
    """What the Python of one executor finds."""
    from pyspark.sql.functions import udf

    look = udf(_looking(_probe()), "string", useArrow=False)
    try:
        (row,) = spark.range(0, 1, 1, 1).select(look("id")).collect()
    except Exception as error:  # noqa: BLE001 -- its class differs between classic, Connect and what was started
        _explain(str(error), context)
    found: Found = json.loads(row[0])
    return found


def _looking(text: str) -> Callable[[int], str]:
    def look(_: int) -> str:
        # A nested function is sent as it is, not by its name: the executors may not have this module.
        import json

        names: dict[str, object] = {"__name__": "probe"}
        exec(text, names)
        return json.dumps(names["look"]())  # type: ignore[operator]

    return look


# ---- what is wrong


def _judge(found: Found, where: str, context: SparkContext | None) -> None:
    """WrongInstallation where a Python lacks what it needs."""
    python = f"{found['executable']} on {found['host']}"
    facts = {"where": where, "python": found["executable"], "host": found["host"]}
    if found["python"] != _THIS_PYTHON:
        _other_python(str(found["python"]), where, context)
    if found.get("version", __version__) != __version__:
        raise WrongInstallation(
            f"the {where} have pyspark-kafka-eos {found['version']} ({python}), and this driver has {__version__}: install "
            f"one version on all of them{_or_another_python(context)}"
            if where == _EXECUTORS
            else f"Spark runs the format on the driver with {python}, which has pyspark-kafka-eos {found['version']}, and "
            f"this process has {__version__}: install one version{_or_another_python(context)}",
            facts,
        )
    if "missing" in found:
        raise WrongInstallation(
            f"the Python of the {where}, {python}, cannot import pyspark-kafka-eos ({found['missing']}): install the package "
            f"there with all that it needs{_or_another_python(context)}",
            facts,
        )


def _explain(text: str, context: SparkContext | None) -> NoReturn:
    """WrongInstallation for a job of one Python function that failed before the function ran."""
    mismatch = re.search(r"PYTHON_VERSION_MISMATCH\D*(\d+\.\d+)", text)
    if mismatch:
        _other_python(mismatch[1], _EXECUTORS, context)
    program = re.search(r'Cannot run program "([^"]+)"', text)
    if program:
        _cannot_run(program[1], _EXECUTORS, context)
    # What a worker printed before it ended is the cause of all that Spark says of it.
    printed = re.search(
        r"Error from python worker:\s*\n(.*?)\n\s*(?:PYTHONPATH was:|[\w.]+Exception\b)", text, re.DOTALL
    )
    # Else the first line that names an error, Python's or Java's; lines of Java's stack begin with "at".
    named = re.search(r"^(?:: )?([\w.$]+(?:Error|Exception)\b.*)", text, re.MULTILINE)
    cause = printed[1].strip().splitlines()[-1].strip() if printed and printed[1].strip() else named and named[1]
    raise WrongInstallation(
        f"an executor could not run a Python function ({(cause or text.strip())[:300]}): correct the Python "
        f"of the executors{_or_another_python(context)}",
        {"where": _EXECUTORS},
    )


def _other_python(version: str, where: str, context: SparkContext | None) -> NoReturn:
    raise WrongInstallation(
        f"the Python of the {where} is {version} and this one is {_THIS_PYTHON}, and Spark needs the same minor version: "
        f"set PYSPARK_PYTHON to a Python {_THIS_PYTHON}{_everywhere(context)}",
        {"where": where, "python": version},
    )


def _cannot_run(python: str, where: str, context: SparkContext | None, why: str = "") -> NoReturn:
    reason = f" ({why[:300]})" if why else ""
    raise WrongInstallation(
        f"Spark cannot run {python!r} as the Python of the {where}{reason}: set PYSPARK_PYTHON to a Python that has "
        f"pyspark-kafka-eos{_everywhere(context)}",
        {"where": where, "python": python},
    )


def _or_another_python(context: SparkContext | None) -> str:
    return f", or set PYSPARK_PYTHON to a Python that has it{_everywhere(context)}"


def _everywhere(context: SparkContext | None) -> str:
    if context is None:
        return ", on the server of this session"
    now = os.environ.get("PYSPARK_PYTHON")
    value = f"it is {now}" if now else f"it is not set, so Spark takes {context.pythonExec}"
    return f" under one path on driver and executors, in the environment of the driver before Spark starts ({value})"


__all__ = ["register"]
