"""Documents as tables for a terminal. Pure: a document in, lines of any width out.

Owns: columns, colours, how numbers and times are written.
Does not know: brokers, where it is printed, how columns get their widths.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from rich.text import Text

from kafka_core.foreign_text import Lines
from pyspark_kafka_eos.cli.documents import Document
from pyspark_kafka_eos.cli.layout import Cell, Grid, Part, Said, Sheet
from pyspark_kafka_eos.model.said_times import span

_COLOURS = {
    "ok": "green", "warn": "yellow", "fail": "bold red", "unknown": "magenta",
    "decided": "green", "open": "yellow", "unreadable": "bold red",
    "matches": "green", "differs": "bold red", "aborted": "red", "gone": "magenta",
    "committed": "green", "fenced": "green", "created": "green", "deleted": "green", "unchanged": "dim", "refused": "bold red",
    "use": "green", "dropped": "dim", "missing": "yellow", "default differs": "yellow",
}  # fmt: skip


def render(document: Document) -> Sheet:
    """The document as tables and sentences for people."""
    if "error" in document:
        return _error(document["error"])
    shown = {
        "doctor": _doctor, "ledger": _ledger, "verify": _verify, "transactions list": _transactions,
        "transactions explain": _explain, "topic list": _topics, "topic create": _topics_done, "topic delete": _topics_done,
        "migrate-options": _migrated,
    }.get(document["command"], _done)  # fmt: skip
    return shown(document)


def _doctor(document: Document) -> Sheet:
    table = Grid(("status", "check", "seen", "what to do"))
    for each in document["checks"]:
        name = f"{each['name']} {each['about']}".strip()
        table.add(_status(each["status"]), name, each["seen"], each["do"])
    counts = {
        state: sum(each["status"] == state for each in document["checks"]) for state in ("fail", "warn", "unknown")
    }
    found = ", ".join(f"{number} {state}" for state, number in counts.items() if number)
    what = "the source" if document["pipeline"] is None else f"pipeline {document['pipeline']}"
    can = {True: "yes", False: "no: it stops at what fails above"}.get(
        document["can_start"], "not known: what is unknown above decides it"
    )
    return Sheet(table, Said(f"{what}: {found or 'everything is fine'}"), Said(f"can start: {can}"))


class LedgerTable(Sheet):
    """Decisions as they are found, and the closing lines. Printed again, it shows only the rows added
    since."""

    def __init__(self) -> None:
        self._table = Grid(
            ("pipeline", "status", "batch", "query", "decided", "slots", "records", "bytes", "version", "at"),
            ("version", "at", "bytes", "slots"),
        )
        super().__init__(self._table)
        self._problems: list[Said] = []
        self._offsets: dict[str, list[str]] = {}

    def add(self, pipeline: str, decisions: Sequence[Document]) -> None:
        """The newest decisions of a pipeline, or the next older ones."""
        for each in decisions:
            place = f"{each['partition']}:{each['offset']}"
            if each["problem"]:
                self._problems.append(Said(f"{pipeline} at {place}: {each['problem']}", "red"))
            if "batch_id" not in each:
                self._table.add(pipeline, _status(each["status"]), *[""] * 7, place)
                continue
            repaired = f" (repaired {each['repaired']}x)" if each["repaired"] else ""
            dead = f" ({each['dead_letters']:,} dead letters)" if each["dead_letters"] else ""
            self._table.add(
                pipeline, _status(each["status"]), f"{each['batch_id']}{repaired}", each["query_id"][:8],
                _time(each["decided_ms"]), str(len(each["slots"])), f"{each['records']:,}{dead}", _size(each["bytes"]),
                each["connector_version"], place,
            )  # fmt: skip
        # The first page of a pipeline has its newest decision.
        own = [each for each in decisions if each["status"] != "foreign"]
        if own:
            self._offsets.setdefault(pipeline, own[0].get("source_offsets", []))

    def end(self, topic: str) -> Sheet:
        """The lines that follow the table."""
        read = [
            Said(f"{pipeline} has read up to: {_offsets_alone(line)}", "dim")
            for pipeline, lines in sorted(self._offsets.items())
            for line in lines
        ]
        count = len(self._offsets)
        last = Said(f"ledger topic {topic}: {count} pipeline{'' if count == 1 else 's'}")
        return Sheet(also=[*self._problems, *read, last])


def _offsets_alone(line: str) -> str:
    """A source's offsets without the entries that say what they stand on, which name no partition; another source's line as it is."""
    try:
        body = json.loads(line)
    except ValueError:
        return line
    if not isinstance(body, dict) or {} not in body.values():
        return line
    return json.dumps({name: found for name, found in body.items() if found != {}})


def _ledger(document: Document) -> Sheet:
    table = LedgerTable()
    for each in document["pipelines"]:
        table.add(each["pipeline"], each["decisions"])
    return Sheet(table, table.end(document["topic"]))


def _verify(document: Document) -> Sheet:
    if not document["batches"]:
        return Sheet(*_problems(document), Said("the ledger has no decision to verify the output against"))
    table = Grid(
        ("pipeline", "query", "batch", "slots", "verdict", "records", "decided", "digest", "why"),
        ("digest", "slots"),
    )
    for batch in document["batches"]:
        first = [batch["pipeline"], batch["query_id"][:8], str(batch["batch_id"])]
        if not batch["transactions"]:
            table.add(*first, "", _status(batch["verdict"]), "0", "0", "", "nothing was written")
        for each in batch["transactions"]:
            same = each["found_digest"] == each["expected_digest"]
            digest = "" if each["found_digest"] is None else "same" if same else "other"
            table.add(
                *first, _numbers(each["slots"]), _status(each["verdict"]), f"{each['found_records']:,}",
                f"{each['expected_records']:,}", digest, each["reason"],
            )  # fmt: skip
    good = sum(each["verdict"] == "matches" for each in document["batches"])
    more = [Said(each["reason"], "red") for each in document["undecided"]]
    return Sheet(
        table,
        *_problems(document),
        *more,
        Said(f"{good} of {len(document['batches'])} batches match the ledger, count and digest"),
        _searched(document),
        *_older(document),
    )


def _older(document: Document) -> list[Said]:
    if not document["older"]:
        return []
    return [
        Said(
            f"older batches of {', '.join(document['older'])} are in the ledger and were not read; -n COUNT reads more"
        )
    ]


def _searched(document: Document) -> Said:
    """What "nothing more" stands on: where other commits of the pipelines' ids were looked for."""
    topics, count = document["searched"]["topics"], len(document["undecided"])
    where = f"{document['searched']['partitions']:,} partitions of {', '.join(topics)}, from these batches on"
    if count:
        found = "1 other commit of their ids that no" if count == 1 else f"{count} other commits of their ids that no"
        return Said(f"{found} decision names, in {where}")
    return Said(f"no other commit of their ids in {where}; rows that name a topic of their own may have gone to others")


def _transactions(document: Document) -> Sheet:
    table = Grid(
        ("id", "state", "producer", "open for", "times out", "decided", "readers wait in"),
        ("producer", "times out", "decided"),
    )
    for each in document["transactions"]:
        decided = "" if each["decided_batch"] is None else f"batch {each['decided_batch']}: {each['decided_outcome']}"
        table.add(
            each["transactional_id"] or "(no id)",
            _state(each["state"]),
            f"{each['producer_id']} epoch {each['producer_epoch']}",
            "" if each["open_for_ms"] is None else span(each["open_for_ms"]),
            _left(each),
            decided,
            _waiting(each),
        )
    unsettled = [each for each in document["transactions"] if each["open_for_ms"] is not None or each["holds"]]
    count = Said(f"{len(document['transactions'])} ids, {len(unsettled)} with something open")
    return Sheet(table, *_problems(document), count)


def _explain(document: Document) -> Sheet:
    lines: list[Part] = []
    # Slots with the same story are shown together.
    for told, alike in groupby(document["transactions"], key=_told):
        for each in alike:
            state = _state(each["state"])
            lines.append(Text.assemble((each["transactional_id"], "bold"), "  ", (state.text, state.style)))
        lines.append(Said(f"{told[0].upper()}{told[1:]}", indent="  "))
    lines += _problems(document)
    return Sheet(also=lines or [Said("no transactional id of it is listed")])


def _problems(document: Document) -> list[Said]:
    """The pipelines whose ledger record cannot be read, which have no rows then, or whose ledger has lost a decision."""
    return [Said(f"{each['pipeline']}: {each['problem']}", "red") for each in document["problems"]]


def _told(each: Document) -> str:
    waits = _waiting(each)
    return str(each["story"]) + (f". Readers wait in {waits}" if waits else "") + "."


def _done(document: Document) -> Sheet:
    if not document["done"]:
        return Sheet(Said("no transaction is open: there was nothing to do"))
    table = Grid(("id", "outcome", "what is known"))
    for (outcome, detail), alike in groupby(document["done"], key=lambda each: (each["outcome"], each["detail"])):
        table.add(Lines.joined(each["transactional_id"] for each in alike), _status(outcome), detail)
    return Sheet(table)


def _topics(document: Document) -> Sheet:
    table = Grid(("topic", "partitions", "replicas", "no leader"))
    for each in document["topics"]:
        lost = each["without_leader"]
        table.add(
            each["name"], str(each["partitions"]), str(each["replication_factor"]), Cell(str(lost), "bold red") if lost else "",
        )  # fmt: skip
    count = len(document["topics"])
    return Sheet(table, Said(f"{count} topic{'' if count == 1 else 's'}"))


def _topics_done(document: Document) -> Sheet:
    table = Grid(("topic", "outcome", "what is known"))
    for each in document["done"]:
        table.add(each["topic"], _status(each["outcome"]), each["detail"])
    return Sheet(table)


def _migrated(document: Document) -> Sheet:
    table = Grid(("what", "option", "value or reason"))
    for name, value in document["options"].items():
        table.add(_status("use"), name, value)
    for each in document["dropped"]:
        table.add(_status("dropped"), each["name"], each["why"])
    for each in document["different"]:
        table.add(_status("default differs"), each["name"], each["what"])
    for each in document["missing"]:
        table.add(_status("missing"), each["name"], each["what"])
    for each in document["refused"]:
        table.add(_status("refused"), Lines.joined(each["names"]), each["why"])
    counts = ", ".join(
        f"{len(document[part])} {word}"
        for part, word in (
            ("options", "to use"),
            ("dropped", "dropped"),
            ("missing", "missing"),
            ("refused", "refused"),
        )
    )
    return Sheet(table, Said(f"options of a {document['side']} of format kafka_eos: {counts}"))


def _error(error: dict[str, Any]) -> Sheet:
    facts = ", ".join(f"{name}={value}" for name, value in error["facts"].items())
    return Sheet(
        Said(Lines(f"{error['class']}: {error['message']}"), "red"),
        *([Said(f"[{facts}]", "dim")] if facts else []),
        Said(f"who acts: {error['who_acts']}", "dim"),
    )


# ---- cells


def _status(word: str) -> Cell:
    return Cell(word, _COLOURS.get(word, ""))


def _state(word: str) -> Cell:
    return Cell(word, "yellow" if word.startswith(("Ongoing", "Prepare")) else "dim")


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
