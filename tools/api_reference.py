"""The API reference, rendered from the docstrings, with every public name on it and every link between its pages
checked.

    python -m tools.api_reference build/api

Owns: which modules are public, where the pages go, whether each public name is there and each link leads somewhere.
Does not know: what the docstrings say. docs/api.md says what each name is for, and tests/test_face.py holds it to the
same names.
Invariants: a link that leads nowhere is an error, and so is a public name without a docstring or without a place on its
page.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import warnings
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path

MODULES = ("pyspark_kafka_eos", "kafka_core.errors", "embedded_kafka")
"""The modules whose names stay: docs/api.md."""

_OUTSIDE = ("http:", "https:", "mailto:", "data:")


def public_names(module: str) -> list[str]:
    """The names of a public module that stay. Those of the errors are all its classes."""
    found = import_module(module)
    own = (name for name, value in vars(found).items() if inspect.isclass(value) and value.__module__ == module)
    return [*getattr(found, "__all__", own)]


def render(directory: Path) -> None:
    """Write a page for each public module, and an index."""
    # A library of `make docs` alone, which is installed beside the environment: requirements/docs.txt.
    pdoc = import_module("pdoc")
    for name in MODULES:
        module = import_module(name)
        # Both packages import a name on its first use, and the renderer looks at what is there.
        vars(module).update({each: getattr(module, each) for each in public_names(name)})
    with warnings.catch_warnings():
        # The types of Spark are imported for the type checker alone; their names are shown as they stand.
        warnings.filterwarnings("ignore", "Error parsing type annotation", UserWarning)
        pdoc.pdoc(*MODULES, output_directory=directory)


def undocumented() -> list[str]:
    """Public names without a docstring."""
    found = []
    for module in MODULES:
        for name in public_names(module):
            value = getattr(import_module(module), name)
            if callable(value) and not inspect.getdoc(value):
                found.append(f"{module}.{name}")
    return found


def unplaced(directory: Path) -> list[str]:
    """Public names that have no place on the page of their module."""
    found = []
    for module in MODULES:
        page = _Page((directory / f"{module.replace('.', '/')}.html").read_text(encoding="utf-8"))
        found += [f"{module}.{name}" for name in public_names(module) if name not in page.ids]
    return found


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if given.get("id"):
            self.ids.add(str(given["id"]))
        if tag == "a" and given.get("href"):
            self.links.append(str(given["href"]))


def broken_links(directory: Path) -> list[str]:
    """Links between the pages of a directory that lead to no page or to no place on it."""
    pages = {path.resolve(): _Page(path.read_text(encoding="utf-8")) for path in directory.rglob("*.html")}
    found = []
    for path, page in pages.items():
        for link in page.links:
            if link.startswith(_OUTSIDE):
                continue
            file, _, place = link.partition("#")
            target = (path.parent / file).resolve() if file else path
            if target not in pages or (place and place not in pages[target].ids):
                found.append(f"{path.name}: {link}")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Render and check; 1 where something is missing."""
    parser = argparse.ArgumentParser(prog="python -m tools.api_reference", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path)
    directory: Path = parser.parse_args(arguments).directory
    render(directory)
    problems = [f"no docstring: {name}" for name in undocumented()]
    problems += [f"no place on its page: {name}" for name in unplaced(directory)]
    problems += [f"no such place: {link}" for link in broken_links(directory)]
    sys.stderr.writelines(f"{problem}\n" for problem in problems)
    sys.stdout.write(f"{directory / 'index.html'}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
