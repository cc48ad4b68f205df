"""Documents as tables for a terminal. Pure: a document in, things that rich can print out.

Owns: columns, colours, how numbers and times are written.
Does not know: brokers, where it is printed.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from connector.cli.documents import Document
from connector.commit.checks import span

_COLOURS = {
    "ok": "green", "warn": "yellow", "fail": "bold red", "unknown": "magenta",
    "decided": "green", "open": "yellow", "unreadable": "bold red",
    "matches": "green", "differs": "bold red", "aborted": "red", "gone": "magenta",
    "committed": "green", "fenced": "green", "unchanged": "dim", "refused": "bold red",
}  # fmt: skip


def render(document: Document) -> RenderableType:
    """The document as people read it."""
    if "error" in document:
        return _error(document["error"])
    shown = {
        "doctor": _doctor, "ledger": _ledger, "verify": _verify, "transactions list": _transactions,
        "transactions explain": _explain,
    }.get(document["command"], _done)  # fmt: skip
    return shown(document)


def _doctor(document: Document) -> RenderableType:
    table = _table("", "check", "seen", "what to do")
    for each in document["checks"]:
        name = f"{each['name']} {each['about']}".strip()
        table.add_row(_status(each["status"]), escape(name), escape(each["seen"]), escape(each["do"]))
    counts = {
        state: sum(each["status"] == state for each in document["checks"])
        for state in ("fail", "warn", "unknown")
    }
    found = ", ".join(f"{number} {state}" for state, number in counts.items() if number)
    return Group(table, Text(f"pipeline {document['pipeline']}: {found or 'everything is fine'}"))


def _ledger(document: Document) -> RenderableType:
    table = _table("pipeline", "", "batch", "query", "decided", "slots", "records", "bytes", "version", "at")
    for pipeline in document["pipelines"]:
        name = pipeline["pipeline"]
        for each in pipeline["decisions"]:
            place = f"{each['partition']}:{each['offset']}"
            if "batch_id" not in each:
                table.add_row(escape(name), _status(each["status"]), *[""] * 7, place)
            else:
                repaired = f" (repaired {each['repaired']}x)" if each["repaired"] else ""
                dead = f" ({each['dead_letters']:,} dead letters)" if each["dead_letters"] else ""
                table.add_row(
                    escape(name), _status(each["status"]), f"{each['batch_id']}{repaired}", each["query_id"][:8],
                    _time(each["decided_ms"]), str(len(each["slots"])), f"{each['records']:,}{dead}", _size(each["bytes"]),
                    each["connector_version"], place,
                )  # fmt: skip
            name = ""
    problems = [
        Text(
            f"{pipeline['pipeline']} at {each['partition']}:{each['offset']}: {each['problem']}", style="red"
        )
        for pipeline in document["pipelines"]
        for each in pipeline["decisions"]
        if each["problem"]
    ]
    offsets = [
        Text(f"{pipeline['pipeline']} has read up to: {line}", style="dim")
        for pipeline in document["pipelines"]
        for line in next((each.get("source_offsets", []) for each in pipeline["decisions"]), [])
    ]
    last = Text(f"ledger topic {document['topic']}: {len(document['pipelines'])} pipelines")
    return Group(table, *problems, *offsets, last)


def _verify(document: Document) -> RenderableType:
    table = _table("pipeline", "batch", "slots", "verdict", "records", "decided", "digest", "why")
    for batch in document["batches"]:
        first = [escape(batch["pipeline"]), str(batch["batch_id"])]
        if not batch["transactions"]:
            table.add_row(*first, "", _status(batch["verdict"]), "0", "0", "", "nothing was written")
        for each in batch["transactions"]:
            same = each["found_digest"] == each["expected_digest"]
            digest = "" if each["found_digest"] is None else "same" if same else "other"
            table.add_row(
                *first, _numbers(each["slots"]), _status(each["verdict"]), f"{each['found_records']:,}",
                f"{each['expected_records']:,}", digest, escape(each["reason"]),
            )  # fmt: skip
            first = ["", ""]
    if not document["batches"]:
        return Text("the ledger has no decision to verify the output against")
    good = sum(each["verdict"] == "matches" for each in document["batches"])
    return Group(
        table, Text(f"{good} of {len(document['batches'])} batches match the ledger, count and digest")
    )


def _transactions(document: Document) -> RenderableType:
    table = _table("id", "state", "producer", "open for", "times out", "decided", "readers wait in")
    for each in document["transactions"]:
        decided = (
            ""
            if each["decided_batch"] is None
            else f"batch {each['decided_batch']}: {each['decided_outcome']}"
        )
        table.add_row(
            escape(each["transactional_id"]),
            _state(each["state"]),
            f"{each['producer_id']} epoch {each['producer_epoch']}",
            "" if each["open_for_ms"] is None else span(each["open_for_ms"]),
            _left(each),
            decided,
            _waiting(each),
        )
    unsettled = [
        each for each in document["transactions"] if each["open_for_ms"] is not None or each["holds"]
    ]
    return Group(table, Text(f"{len(document['transactions'])} ids, {len(unsettled)} with something open"))


def _explain(document: Document) -> RenderableType:
    lines: list[RenderableType] = []
    for each in document["transactions"]:
        lines.append(Text.assemble((each["transactional_id"], "bold"), "  ", _state(each["state"])))
        waits = _waiting(each)
        told = each["story"] + (f". Readers wait in {waits}" if waits else "") + "."
        lines.append(Text(f"  {told[0].upper()}{told[1:]}"))
    return Group(*lines) if lines else Text("no transactional id of it is known")


def _done(document: Document) -> RenderableType:
    table = _table("id", "outcome", "what is known")
    for each in document["done"]:
        table.add_row(escape(each["transactional_id"]), _status(each["outcome"]), escape(each["detail"]))
    return table if document["done"] else Text("there was nothing to do")


def _error(error: dict[str, Any]) -> RenderableType:
    facts = ", ".join(f"{name}={value}" for name, value in error["facts"].items())
    return Group(
        Text.assemble(
            (error["class"], "bold red"), f": {error['message']}", (f" [{facts}]" if facts else "", "dim")
        ),
        Text(f"who acts: {error['who_acts']}", style="dim"),
    )


# ---- cells


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _status(word: str) -> Text:
    return Text(word, style=_COLOURS.get(word, ""))


def _state(word: str) -> Text:
    return Text(word, style="yellow" if word.startswith(("Ongoing", "Prepare")) else "dim")


def _time(at_ms: int) -> str:
    return datetime.datetime.fromtimestamp(at_ms / 1000, datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")


def _size(number: int) -> str:
    size = float(number)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"


def _left(each: Document) -> str:
    if each["open_for_ms"] is None:
        return ""
    if each["timeout_ms"] == 2**31 - 1:
        return "never"
    left = each["timeout_ms"] - each["open_for_ms"]
    return f"in {span(left)}" if left > 0 else "now"


def _waiting(each: Document) -> str:
    if each["holds"] is None:
        return "? (no right to look: READ on the topics)"
    return ", ".join(
        f"{hold['topic']}-{hold['partition']} at {hold['open_from']} ({hold['end_offset'] - hold['open_from']} behind)"
        for hold in each["holds"]
        if hold["readers_wait_for_it"]
    )


def _numbers(slots: Sequence[int]) -> str:
    if len(slots) > 2 and list(slots) == list(range(slots[0], slots[-1] + 1)):
        return f"{slots[0]}-{slots[-1]}"
    return ", ".join(map(str, slots))
