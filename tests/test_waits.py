"""No wait without a bound: every place where the client, the tasks or the driver wait is listed here with what ends the
wait.

Found by reading the code: calls that wait (Condition.wait, Event.wait, Future.result, Thread.join, Queue.get,
Lock.acquire, socket.recv, select), pools whose end is waited for, and loops that pause or have no condition.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "connector" / "pyspark_kafka_eos"
ROOMS = ("client", "commit", "operations", "slot")
"""Where records and decisions are sent; the source, the sink and the operator wait through these."""

CALLS = frozenset({"wait", "result", "join", "get", "acquire", "recv", "recv_into", "select"})
PAUSES = frozenset({"pause", "sleep"})
CLOCKS = ("deadline", "monotonic", "left", "give_up", "remaining")


BOUNDS: dict[str, str] = {
    "client.definite::until_definite::while": "deadline_ms, which every caller gives: 2 s for a new topic, 10 to 60 s for the others",
    "operations.checks::addresses::workers": "by the openings, 4 s and one request each",
    "operations.checks::addresses::result": "by the openings, 4 s and one request each",
    "client.cluster::Cluster.shared::acquire": "timeout_ms of the caller, who then raises",
    "client.writing.delivery::Delivery._await::wait": "twice kafka.delivery.timeout.ms, or the caller's timeout_ms",
    "client.writing.delivery::Delivery._look_elsewhere::acquire": "by whoever has the lock: nothing is waited for under it",
    "client.writing.delivery::Delivery.stop::wait": "timeout_ms of the caller, 10 s",
    "client.net.credentials.files::find::join": "nothing: two parts of a path",
    "client.net.addresses::_close_late::result": "by the attempt, which is done",
    "client.net.addresses::_first::result": "by the attempt, which is done",
    "client.net.addresses::_first::wait": "by the time of an opening (pool.open), which cancels it",
    "client.net.first_contact::FirstContact._from::wait": "by the time of an opening (pool.open), which closes it",
    "client.net.first_contact::FirstContact.make::while": "by the deadline of the caller",
    "client.net.loop::Loop.stop::join": "the caller's time, 1 s; the thread does not keep its process",
    "client.net.network::Network._wait_for::wait": "a second at a time, until the bounded work is over or the loop has ended",
    "client.net.opening::Opener.learn_versions::while": "by the version, which is lower each time",
    "client.net.pool::Pool._refresh_until_done::while": "by the end of the connections; it keeps nobody waiting",
    "client.net.transport::PlainTransport._readable::recv_into": "by the socket, which does not block",
    "client.reading.fetcher::Fetcher._ask::while": "by the stall timeout of each range without a leader, kafka.delivery.timeout.ms",
    "client.reading.absence::_gone::while": "patience_ms of the caller, 30 s",
    "client.reading.absence::require_leaders::while": "patience_ms of the caller, 30 s",
    "client.reading.leader_epochs::lost_logs::while": "patience_ms of the caller, 10 s",
    "client.reading.log_reader::read_raw::while": "timeout_ms of the caller, kafka.default.api.timeout.ms",
    "client.net.network::Network.call_many::wait": "a request's time and two more for connecting without any answer, a second at a time",
    "client.reading.offsets::Offsets.partitions_of::while": "patience_ms of the caller for topics that are missing, then 60 s",
    "client.writing.unconfirmed::Unconfirmed._await::wait": "four request timeouts, after which the batches count as lost",
    "operations.counting::_beyond::while": "by the log's end: each read moves on and is bounded by itself",
    "commit.fates::_read::while": "by the log's end; 30 s where its leader returns nothing before it",
    "commit.noted_fates::_ended::while": "by the log's end: each read moves on and is bounded by itself",
    "commit.whole_batch.driver::WholeBatch.process::while": "by the number of tries, three",
    "commit.whole_batch.driver::_Try._check::workers": "by describe_producers, 30 s",
    "commit.whole_batch.driver::_Try._check::result": "by describe_producers, 30 s, and by turns_end, a deadline of 30 s behind an append",
    "commit.dataframe_write::_start::while": "by the number of tries",
    "commit.markers::Mender.await_markers::while": "30 s for markers that do not appear",
    "client.net.oauth.time_limit::TimeLimit._wait::wait": "both timeouts of a token's fetch",
    "commit.markers::Mender.misses_marker::while": "30 s for a coordinator that is writing markers",
    "commit.ledger.arrived::has_marker::while": "5 s for a marker that does not appear; each look by describe_producers, 30 s",
    "commit.ledger.topic::Ledger.settled::while": "90 s for a decision that stays open",
    "commit.proof::prove::while": "settle_ms of the caller, 30 s",
    "slot.turn_sender::TurnSender.give::wait": "half a second at a time; it ends with room, an error, or the sending thread",
    "slot.turn_sender::TurnSender.finish::join": "half a second at a time; the sending thread ends: each of its steps is bounded",
    "slot.turn_sender::TurnSender.stop::join": "10 s for both threads, which then end by themselves",
    "slot.turn_sender::TurnSender._wait_for_others::wait": "half a second at a time; kafka.delivery.timeout.ms without a word from others, else the task's own rows",
    "commit.shell::CommitShell._check_alive::workers": "by describe_producers, 30 s",
    "commit.shell::CommitShell._check_alive::result": "by describe_producers, 30 s",
}
"""Place -> what ends the wait, and after how long at most. "by ...": something else than the code beside it."""


@dataclass(frozen=True)
class Wait:
    """One place. `bounded`: the code beside it says when the wait ends."""

    place: str
    line: int
    bounded: bool


def waits_in(path: Path) -> Iterator[Wait]:
    module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    yield from _walk(ast.parse(path.read_text(encoding="utf-8")), module, [])


def _walk(node: ast.AST, module: str, within: list[ast.AST]) -> Iterator[Wait]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _walk(child, module, [*within, child])
            continue
        what = _what(child)
        if what is not None:
            function = next((each for each in reversed(within) if isinstance(each, ast.FunctionDef)), None)
            names = ".".join(getattr(each, "name", "") for each in within)
            yield Wait(f"{module}::{names}::{what}", getattr(child, "lineno", 0), _bounded(child, function))
        yield from _walk(child, module, within)


def _what(node: ast.AST) -> str | None:
    if isinstance(node, ast.While):
        called = {_name(each) for each in ast.walk(node) if isinstance(each, ast.Call)}
        endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
        return "while" if endless or called & PAUSES else None
    if not isinstance(node, ast.Call):
        return None
    name = _name(node)
    if name == "workers":
        return name
    if name not in CALLS or not isinstance(node.func, ast.Attribute):
        return None
    if name == "get" and (node.args or any(word.arg != "timeout" for word in node.keywords)):
        return None  # of a mapping
    if name == "join" and node.args and not isinstance(node.args[0], ast.Constant | ast.Name | ast.BinOp):
        return None  # of text
    return None if isinstance(node.func.value, ast.Constant | ast.JoinedStr) else name


def _name(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _bounded(node: ast.AST, function: ast.FunctionDef | None) -> bool:
    if isinstance(node, ast.Call):
        if _name(node) == "acquire":
            return any(word.arg == "timeout" for word in node.keywords) or len(node.args) > 1
        return _name(node) in CALLS - {"recv", "recv_into"} and bool(node.args or node.keywords)
    compared = [each for each in ast.walk(function or node) if isinstance(each, ast.Compare)]
    return any(clock in ast.unparse(each) for each in compared for clock in CLOCKS)


@cache
def found() -> list[Wait]:
    files = sorted(path for room in ROOMS for path in (PACKAGE / room).rglob("*.py"))
    return [wait for path in files for wait in waits_in(path)]


def test_every_wait_is_listed_with_its_bound() -> None:
    unlisted = sorted({f"{each.place} (line {each.line})" for each in found() if each.place not in BOUNDS})

    assert not unlisted, f"say in this file what ends these waits, and how long that takes at most: {unlisted}"


def test_nothing_is_listed_that_is_not_there() -> None:
    stale = sorted(set(BOUNDS) - {each.place for each in found()})

    assert not stale, f"these are not in the code any more: {stale}"


def test_a_wait_without_a_time_of_its_own_says_what_ends_it() -> None:
    silent = sorted(
        {f"{each.place} (line {each.line})" for each in found() if not each.bounded}
        - {f"{each.place} (line {each.line})" for each in found() if BOUNDS.get(each.place, "").startswith("by ")}
    )

    assert not silent, f"give these a timeout or a deadline, or name with 'by ...' what ends them: {silent}"


def test_every_bound_is_said_in_words() -> None:
    assert [place for place, bound in BOUNDS.items() if len(bound.split()) < 3] == []


@pytest.mark.parametrize(
    ("code", "seen", "bounded"),
    [
        ("self._changed.wait()", "wait", False),
        ("self._changed.wait(left)", "wait", True),
        ("done.result()", "result", False),
        ("done.result(timeout=3)", "result", True),
        ("inbox.get()", "get", False),
        ("inbox.get(timeout=3)", "get", True),
        ("thread.join()", "join", False),
        ("thread.join(10)", "join", True),
        ("lock.acquire()", "acquire", False),
        ("lock.acquire(timeout=3)", "acquire", True),
        ("link.recv(10)", "recv", False),
        ("while True:\n        ask()", "while", False),
        ("while missing:\n        self.pause()", "while", False),
        (
            "deadline = 1\n    while missing:\n        if now() > deadline: raise Late\n        time.sleep(1)",
            "while",
            True,
        ),
        ("with runtime.workers(1) as beside: pass", "workers", False),
    ],
)
def test_a_wait_is_found_by_its_shape(code: str, seen: str, bounded: bool) -> None:
    assert list(_waits("m", f"def work():\n    {code}\n")) == [(f"m::work::{seen}", bounded)]


@pytest.mark.parametrize("code", ["', '.join(map(str, each))", "found.get(name)", "while left:\n        left -= 1"])
def test_what_does_not_wait_is_not_found(code: str) -> None:
    assert list(_waits("m", f"def work():\n    {code}\n")) == []


def _waits(module: str, code: str) -> list[tuple[str, bool]]:
    return [(each.place, each.bounded) for each in _walk(ast.parse(code), module, [])]
