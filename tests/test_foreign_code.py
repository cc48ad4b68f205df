"""Nothing that a broker, a log or a file contains is run: the places that run or load code are these, each for its
reason.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("connector",)

RUNS = {
    "eval", "exec", "compile", "__import__", "breakpoint",
    "builtins.eval", "builtins.exec", "builtins.compile", "builtins.__import__",
    "importlib.import_module", "importlib.__import__", "runpy.run_module", "runpy.run_path", "pydoc.locate",
    "pickle.load", "pickle.loads", "pickle.Unpickler", "_pickle.load", "_pickle.loads", "cloudpickle.load", "cloudpickle.loads",
    "dill.load", "dill.loads", "joblib.load", "marshal.load", "marshal.loads", "shelve.open", "pandas.read_pickle",
    "yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.unsafe_load_all", "yaml.full_load", "yaml.full_load_all",
    "numpy.load", "os.system", "os.popen",
}  # fmt: skip
"""Calls that run what they are given, or read it in a format that can."""

REASONS = {
    ("connector/pyspark_kafka_eos/spark/sink/tasks.py", "pickle.loads"): "a failure of a task, which Spark carried from its own executor to its driver",
    ("connector/pyspark_kafka_eos/model/handed_over.py", "pickle.loads"): "a value of this version, which Spark carried between the processes of its own query",
    ("connector/pyspark_kafka_eos/jobs/__main__.py", "importlib.import_module"): "a job of pyspark_kafka_eos.jobs, chosen among the names of a table",
    ("connector/kafka_core/lazy.py", "importlib.import_module"): "an own module, out of the table of what a package exports",
    ("connector/embedded_kafka/apis/__init__.py", "importlib.import_module"): "an own module, by the name of one of the broker's APIs",
    ("connector/pyspark_kafka_eos/client/net/oauth/provider.py", "importlib.import_module"): "the token provider that the user's options name",
    ("connector/pyspark_kafka_eos/spark/registration.py", "exec"): "the package's own probe, as text, on executors that may lack the package",
}  # fmt: skip
"""(file, call) -> where what it runs comes from. Never from a broker or a record."""


def calls_in(source: str) -> set[str]:
    """The full names of what a module calls, or uses as a value, as its imports resolve them."""
    nodes = list(ast.walk(ast.parse(source)))
    meant: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            meant |= {each.asname or each.name.partition(".")[0]: each.name if each.asname else each.name.partition(".")[0] for each in node.names}  # fmt: skip
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            meant |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    found: set[str] = set()
    for node in nodes:
        name = _dotted(node)
        if name is not None:
            head, _, rest = name.partition(".")
            found.add(f"{meant.get(head, head)}.{rest}" if rest else meant.get(head, head))
    shells = (each for each in nodes if isinstance(each, ast.keyword) and each.arg in ("shell", "allow_pickle"))
    return found | {f"{each.arg}=" for each in shells}


def _dotted(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return None if inner is None else f"{inner}.{node.attr}"
    return None


def test_the_places_that_run_or_load_code_are_the_ones_with_a_reason() -> None:
    found = {
        (str(path.relative_to(ROOT)), call)
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for call in calls_in(path.read_text(encoding="utf-8"))
        if call in RUNS | {"shell=", "allow_pickle="}
    }

    assert found == set(REASONS)


@pytest.mark.parametrize(
    ("source", "call"),
    [
        ("import pickle\npickle.loads(x)", "pickle.loads"),
        ("import pickle as p\nf = p.load", "pickle.load"),
        ("from pickle import loads as read\nread(x)", "pickle.loads"),
        ("def f():\n    from yaml import load\n    load(x)", "yaml.load"),
        ("map(eval, x)", "eval"),
        ("import builtins\nbuiltins.exec(x)", "builtins.exec"),
        ("import subprocess\nsubprocess.run(x, shell=True)", "shell="),
        ("import numpy as np\nnp.load(x)", "numpy.load"),
    ],
)
def test_a_call_is_seen_in_whatever_form_it_is_written(source: str, call: str) -> None:
    assert call in calls_in(source)


def test_what_only_looks_like_one_is_none() -> None:
    source = "import yaml, pickle, re\nyaml.safe_load(x)\npickle.dumps(x)\nre.compile(x)\nself.load(x)\nmodel.eval()"

    assert not calls_in(source) & RUNS
