"""Both quickstart notebooks run from top to bottom against the embedded broker, and prove what they say."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from nbclient import NotebookClient

from embedded_kafka.real.java import require_java
from pyspark_kafka_eos.client.cluster import Cluster
from pyspark_kafka_eos.options import SinkOptions
from tests.notebooks.cells import FIRST_LINE, JUPYTER, NOTEBOOKS, SOURCE, jupyter, read_cells

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WITHIN_S = 600
"""For one cell; the longest, Spark's start, takes some 10 s, on a very busy machine minutes."""

PROVEN = "PROVEN: every order is in the output exactly once"


def stopped_with(said: str) -> int:
    """The offsets that were written and not visible when the stream was stopped."""
    (found,) = re.findall(r"stopped with ([\d,]+) offsets written and not visible", said)
    return int(found.replace(",", ""))


def test_the_jupyter_notebook_is_made_of_the_databricks_one() -> None:
    assert JUPYTER.read_text() == jupyter(), "run: python -m tests.notebooks.cells"


def test_no_output_is_committed() -> None:
    cells = nbformat.read(JUPYTER, as_version=4).cells

    assert [cell for cell in cells if cell.cell_type == "code" and (cell.outputs or cell.execution_count)] == []


@pytest.mark.parametrize(
    "text",
    [
        "import os\n",
        f"{FIRST_LINE}# MAGIC %md\nimport os\n",
        f"{FIRST_LINE}import os\n# MAGIC %md\n",
        f"{FIRST_LINE}# MAGIC %sql\n",
    ],
)
def test_what_is_no_databricks_notebook_that_jupyter_can_have_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_cells(text)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.slow
def test_the_databricks_notebook_runs_from_top_to_bottom_outside_of_databricks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its %pip cell is left out: the packages are installed, and tests do not use the network."""
    monkeypatch.setenv("DIRECTORY", str(tmp_path))
    monkeypatch.delenv("BOOTSTRAP_SERVERS", raising=False)
    cells = read_cells(SOURCE.read_text())
    assert [cell.text for cell in cells if cell.kind == "pip"] == ['%pip install "pyspark-kafka-eos[demo]"']

    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        for number, cell in enumerate(cells):
            if cell.kind == "code":
                exec(compile(cell.text, f"{SOURCE.name}, cell {number}", "exec"), names)
    finally:
        # The process goes on, other than a notebook's.
        logging.getLogger("kafka").setLevel(logging.NOTSET)
        if "broker" in names:
            names["broker"].stop()
        if "sink" in names:
            Cluster.shared(SinkOptions.parse(names["sink"]).client).close()

    said = capsys.readouterr().out
    assert PROVEN in said
    assert stopped_with(said) > 0
    assert '"batch_id"' not in said and f"batch {names['decision']['batch_id']} of query" in said


@pytest.mark.spark
@pytest.mark.long
def test_the_jupyter_notebook_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = nbformat.read(JUPYTER, as_version=4)
    settings = {
        **require_java().environ(),
        "PYTHONPATH": str(NOTEBOOKS.parent),
        "DIRECTORY": str(tmp_path),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false --conf spark.driver.host=127.0.0.1 pyspark-shell",
        "IPYTHONDIR": str(tmp_path / "ipython"),
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("BOOTSTRAP_SERVERS", raising=False)

    client = NotebookClient(
        notebook, timeout=WITHIN_S, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    asyncio.run(client.async_execute())

    said = "".join(
        output.get("text", "") for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs
    )
    assert PROVEN in said
    assert stopped_with(said) > 0
