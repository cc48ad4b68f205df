"""A method's name leads to few places: one that stands in many modules is a protocol's, and that one is named here."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).parent.parent / "connector"

MOST_MODULES = 4
"""A search for a name in five modules and more finds everything and nothing."""

PYTHONS = {
    "abort": "asyncio's transports, and pyspark's DataSourceWriter; Kafka's producers have it too",
    "close": "files, sockets and generators",
    "flush": "files; Kafka's producers have it too",
    "get": "mappings",
    "kill": "subprocess.Popen, os.kill",
    "partitions": "pyspark's DataSourceReader and DataSourceStreamReader",
    "read": "files, and pyspark's DataSourceReader",
    "start": "threading.Thread",
    "stop": "asyncio's loops, and pyspark's DataSourceStreamReader",
    "write": "files, and pyspark's DataSourceWriter",
}
"""Names that are Python's or a library's, and whose."""

OURS = {
    "broken_invariant": "`kafka_core.table.Validated`: what is wrong with a machine's value",
    "auth_bytes": "`client.net.exchange.Mechanism`: the next message of a login",
    "is_done": "the same: whether no message is left",
    "receive": "the same: the broker's answer to a message",
    "commit": "`commit.drivers.Driver`, `client.writing.producer.Producer` (Kafka's word), pyspark's DataSourceWriter",
    "from_json": "the values of `model` and of the ledger: a value from the JSON that `to_json` gave",
    "handle": "`kafka_core.table.Handles`: a state machine's one way in",
    "load": "the parts of a broker, which `embedded_kafka.node` starts: take up what is on the disk",
    "take": "`embedded_kafka.security.mechanisms.Exchange`: the client's next message",
    "to_json": "the values of `model` and of the ledger: their form in a record, a seal or a plan",
}
"""Names of protocols of ours, and where each of them stands."""


@cache
def modules_by_method(*packages: str) -> dict[str, set[str]]:
    """Method -> the modules that have a class with it."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in (path for package in packages for path in (SOURCES / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for each in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                    found[each.name].add(path.relative_to(SOURCES).as_posix())
    return found


def dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def test_a_method_that_many_modules_have_is_one_of_a_known_protocol() -> None:
    many = {
        name: sorted(modules)
        for name, modules in modules_by_method("pyspark_kafka_eos", "embedded_kafka", "kafka_core").items()
        if len(modules) > MOST_MODULES and not dunder(name)
    }
    known = PYTHONS.keys() | OURS.keys()

    assert {name: modules for name, modules in many.items() if name not in known} == {}


def test_every_name_of_the_table_is_in_use() -> None:
    found = modules_by_method("pyspark_kafka_eos", "embedded_kafka", "kafka_core")

    assert sorted(name for name in PYTHONS.keys() | OURS.keys() if len(found.get(name, ())) <= MOST_MODULES) == []
