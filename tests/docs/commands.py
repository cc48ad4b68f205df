"""The commands that the documents print, and the command line's own parser as their judge.

Owns: which pieces of a page are commands of `kafka-eos`, and whether the parser takes one.
Does not know: the pages, and what a command does: nothing is run.
Invariants: a command is judged by the parser that a user's command meets, never by a list of names here.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable, Sequence
from typing import Any

import typer.main

from embedded_kafka.__main__ import main as broker_main
from pyspark_kafka_eos.cli.app import app
from pyspark_kafka_eos.jobs.__main__ import main as job_main
from pyspark_kafka_eos.records.warm import main as warm_main

OWN_PARSERS: dict[str, Callable[[list[str]], object]] = {
    "broker": broker_main,
    "job": job_main,
    "warm": warm_main,
}
"""Commands that hand their words to a parser of their own."""

_FENCED = re.compile(r"^```[a-z]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_CODE_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_INDENTED = re.compile(r"^ {4}(\S.*)$", re.MULTILINE)
_BEGINS = re.compile(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*kafka-eos(?= |$)")
_REST_OF_THE_SHELL = re.compile(r"\s+(?:#|&|<|>|\|).*$")


class _Parsed(Exception):
    """The parser has taken the words; the command is not to run."""


def commands_on(text: str) -> list[str]:
    """Every command of `kafka-eos` on a page: its lines of code and its spans of code. What the shell does with it (a
    comment, a pipe, a redirection) is left out."""
    blocks = "\n".join(_FENCED.findall(text))
    spans = _CODE_SPAN.findall(_FENCED.sub("", text))
    lines = [*spans, *blocks.splitlines(), *_INDENTED.findall(text)]
    found = [_REST_OF_THE_SHELL.sub("", line.strip()) for line in lines if _BEGINS.match(line.strip())]
    return list(dict.fromkeys(found))


def refusal(command: str) -> str | None:
    """Why the command line does not take this command, None where it does. A name alone (`kafka-eos topic create`) is
    the mention of a command, which has to exist; brackets mark what may be left out.
    """
    words = shlex.split(_BEGINS.sub("", command).replace("[", " ").replace("]", " "))
    words = [word for word in words if word != "..."]
    if words and words[0] in OWN_PARSERS:
        return _judged_by_argparse(OWN_PARSERS[words[0]], words[1:])
    return _judged_by_click(words)


def _judged_by_click(words: Sequence[str]) -> str | None:
    node: Any = typer.main.get_command(app)
    context = node.make_context("kafka-eos", [], resilient_parsing=True)
    left = list(words)
    try:
        while hasattr(node, "commands"):
            if not left:
                return None
            if left[0].startswith("-"):
                node.make_context(node.name, list(left), parent=context)
                return None
            name, *left = left
            found = node.get_command(context, name)
            if found is None:
                return f"no command is named {name!r}"
            context = found.make_context(name, [], parent=context, resilient_parsing=True)
            node = found
        if left:
            node.make_context(node.name, list(left), parent=context)
    except Exception as error:  # noqa: BLE001 -- typer's own class for wrong usage differs between its versions
        return f"{type(error).__name__}: {error}"
    return None


def _judged_by_argparse(main: Callable[[list[str]], object], words: list[str]) -> str | None:
    real = argparse.ArgumentParser.parse_args
    said: list[str] = []

    def parse_only(self: argparse.ArgumentParser, args: Any = None, namespace: Any = None) -> Any:
        real(self, args, namespace)
        raise _Parsed

    def note(self: argparse.ArgumentParser, message: str) -> None:
        said.append(message)
        raise _Parsed

    if not words:
        return None
    given, argparse.ArgumentParser.parse_args = argparse.ArgumentParser.parse_args, parse_only  # type: ignore[method-assign]
    wrong, argparse.ArgumentParser.error = argparse.ArgumentParser.error, note  # type: ignore[method-assign, assignment]
    try:
        main(words)
    except _Parsed:
        pass
    finally:
        argparse.ArgumentParser.parse_args = given  # type: ignore[method-assign]
        argparse.ArgumentParser.error = wrong  # type: ignore[method-assign]
    # The bare name of a job is the mention of it.
    mentioned = len(words) == 1 and bool(said) and "required" in said[0] and "invalid choice" not in said[0]
    return None if not said or mentioned else said[0]
