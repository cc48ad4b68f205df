"""The form of a job's YAML file: how it is read, and ${NAME} in its values.

Owns: reading the file, replacing variables.
Does not know: which fields exist.
Invariants:
- A message names the field and never shows a value (it may be a password).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from kafka_core.errors import OptionsError

_MOST_BYTES, _MOST_NODES = 1_000_000, 10_000
"""Of a file. Those of this package have 5 kB and 100 values."""

_MOST_BRACKETS = 100
"""Within each other. Those of this package have none."""

_VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")


def read_fields(path: Path) -> dict[Any, Any]:
    """The fields of a YAML file, unchanged; OptionsError where it cannot be read or is not YAML, where a field stands
    twice, and where aliases would make it larger than any file of options is.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise OptionsError(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > _MOST_BYTES:
        raise OptionsError(f"{path} has more than {_MOST_BYTES:,} bytes, so it is no file of options")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise OptionsError(f"{path}, line {line}: this is not UTF-8: save the file as UTF-8") from None
    try:
        body = _parsed(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"
        raise OptionsError(f"{path}{where}: this is not YAML: {error.problem}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise OptionsError(f"{path}, line {line}: this is not YAML: a control character") from None
    except RecursionError:
        raise OptionsError(f"{path}: fields are nested more deeply than in any file of options") from None
    if not isinstance(body, dict):
        raise OptionsError(f"{path}: expected fields such as source: and sink:, found none")
    return body


def _parsed(text: str) -> Any:
    loader = _Loader(text)
    try:
        document = loader.get_single_node()
        if document is None:
            return None
        _judge(document)
        return loader.construct_document(document)
    finally:
        loader.dispose()


class _Loader(yaml.SafeLoader):
    """PyYAML's safe one, which lets a date or a number that is none out as Python's ValueError. With the brackets that
    are open its work grows by their square, so it takes few.
    """

    def fetch_flow_collection_start(self, TokenClass: Any) -> None:  # noqa: N803  PyYAML's own name
        if self.flow_level >= _MOST_BRACKETS:
            raise RecursionError
        super().fetch_flow_collection_start(TokenClass)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except ValueError:
            problem = "a date or a number that does not exist; text stands in quotes"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None


def _judge(document: yaml.Node) -> None:
    """MarkedYAMLError where a field stands twice, where an alias stands for what contains it, and where there are too
    many nodes, each counted as often as aliases name it: nine levels of nine have 400 million.
    """
    count = 0
    above: list[yaml.Node] = []

    def visit(node: yaml.Node) -> None:
        nonlocal count
        count += 1
        if count > _MOST_NODES:
            raise _not_ours(f"more than {_MOST_NODES:,} values", node)
        if isinstance(node, yaml.ScalarNode):
            return
        if any(each is node for each in above):
            raise _not_ours("an alias stands for what contains it", node)
        above.append(node)
        if isinstance(node, yaml.MappingNode):
            names: set[str] = set()
            for key, value in node.value:
                # "<<" takes in another mapping, and may take in several.
                if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                    if key.value in names:
                        raise _not_ours(f"{key.value} stands twice", key)
                    names.add(key.value)
                visit(key)
                visit(value)
        else:
            for each in node.value:
                visit(each)
        above.pop()

    visit(document)


def _not_ours(problem: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


def replace_variables(value: Any, environ: Mapping[str, str], problems: list[str], where: str = "") -> Any:
    """The value with ${NAME} replaced from the environment, and ${NAME:-text} by the text where NAME is not set.

    Adds a line to `problems` for each variable that has neither.
    """
    if isinstance(value, dict):
        return {key: replace_variables(each, environ, problems, f"{where}{key}.") for key, each in value.items()}
    if not isinstance(value, str):
        return value

    def look_up(match: re.Match[str]) -> str:
        default: str | None = match["default"]
        found = environ.get(match["name"]) or default
        if found is None:
            problems.append(
                f"{where.removesuffix('.')}: the environment variable {match['name']} is not set or empty; set it, or give a "
                f"default as ${{{match['name']}:-default}}"
            )
            return ""
        return found

    return _VARIABLE.sub(look_up, value)
