"""The tables of docs/deploying.md that `make clusters` makes: what was run, on what it ran, how long it took, how large
things are.

    pytest -m clusters tests/clusters --write-page

Owns: which test shows which line; the form of both tables.
Does not know: how the tests do it.
Invariants: only a run writes an outcome. A line whose test was not in a run stays as the run before left it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tests.clusters.page import PAGE

NOT_SEEN = "not run yet"

LINES = {
    "test_standalone.py::test_a_job_whose_driver_and_executor_are_killed_writes_every_record_once":
        ("Spark standalone, two workers", "driver, executor"),
    "test_yarn.py::test_in_client_mode_a_killed_driver_executor_and_node_cost_no_record":
        ("YARN, client mode", "driver, executor, NodeManager"),
    "test_yarn.py::test_in_cluster_mode_a_killed_driver_and_a_lost_node_cost_no_record":
        ("YARN, cluster mode", "driver, then its whole node"),
    **{
        f"test_checkpoints.py::test_killed_between_the_decision_and_the_end_every_row_is_there_once[{place}-{way}]":
        (f"checkpoint on {name}, by {said}", "driver, between decision and end")
        for place, name in {"hdfs": "HDFS", "s3": "S3"}.items()
        for way, said in {"format": "format", "foreachBatch": "`foreachBatch`"}.items()
    },
    "test_checkpoints.py::test_by_format_a_checkpoint_that_only_java_can_read_stops_the_query_before_anything_is_written":
        ("checkpoint on HDFS without libhdfs, by format: refused", "nothing"),
    "test_warm.py::test_the_cache_that_the_command_fills_has_every_kernel":
        ("the kernels' cache", "nothing"),
    "test_kubernetes.py::test_the_schemas_of_kubernetes_accept_the_manifests_and_refuse_a_mistake":
        ("Kubernetes: its schemas judge the manifests, nothing is started", "nothing"),
}  # fmt: skip
"""The test that shows a line -> what runs, what is killed."""

SIZES = {
    "venv-pack": "the environment packed by venv-pack, without Spark",
    "conda-pack": "the same with Python itself, in conda-pack's layout",
    "unpacked": "the environment unpacked",
    "kernels": "the kernels' cache",
}
"""A size that a test records -> what has it."""

HEAD = {"run": "| runs | killed | shown by | seen |\n|---|---|---|---|\n", "sizes": "| | MB |\n|---|---|\n"}


def between(name: str, text: str) -> str:
    """What stands between the marks of a table."""
    found = re.search(rf"<!-- {name}: made by make clusters -->\n(.*?)<!-- end -->", text, re.DOTALL)
    assert found is not None, name
    return found[1]


def cells(name: str, text: str) -> dict[str, str]:
    """The first cell of each line of a table -> its last."""
    lines = between(name, text).removeprefix(HEAD[name]).splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {row[0]: row[-1] for row in rows}


def written(outcomes: Mapping[str, str], sizes: Mapping[str, float], text: str) -> str:
    """The page with what a run has seen: test -> outcome, size -> bytes."""
    seen, had = cells("run", text), cells("sizes", text)
    run = "".join(
        f"| {runs} | {killed} | `tests/clusters/{test.partition('::')[0]}` | {outcomes.get(test) or seen.get(runs, NOT_SEEN)} |\n"
        for test, (runs, killed) in LINES.items()
    )
    measured = {what: f"{sizes[name] / 1e6:.1f}" for name, what in SIZES.items() if name in sizes}
    table = "".join(f"| {what} | {measured.get(what) or had.get(what, NOT_SEEN)} |\n" for what in SIZES.values())
    for name, rows in {"run": run, "sizes": table}.items():
        text = text.replace(between(name, text), HEAD[name] + rows)
    return text


def write(outcomes: Mapping[str, str], sizes: Mapping[str, float], page: Path = PAGE) -> None:
    """Write both tables into the page."""
    page.write_text(written(outcomes, sizes, page.read_text()))
