"""The comparison itself: it has to notice what it is for, and the list of known differences must not rot."""

from __future__ import annotations

from fnmatch import fnmatchcase

from tests.differential import records
from tests.differential.brokers import PAIRS
from tests.differential.compare import NOT_THERE, Difference, Known, differences, problems
from tests.differential.known import KNOWN
from tests.differential.known_table import DOCUMENT, table_of, with_table
from tests.differential.play import Play, Step, new_token
from tests.differential.records import Identity, batch
from tests.differential.script import scenarios
from tests.differential.wire import Connection

_LISTED = Known("a", ("story",), ("step*",), "*code", "meant")


def test_equal_transcripts_have_no_differences() -> None:
    steps = [("one", {"error_code": "NONE", "topics": [{"name": "t"}]}), ("two", 3)]
    assert differences(steps, list(steps)) == []


def test_a_difference_names_its_step_its_path_and_both_values() -> None:
    ours = [("one", {"topics": [{"name": "t", "error_code": "NONE"}]})]
    theirs = [("one", {"topics": [{"name": "t", "error_code": "INVALID_TXN_STATE"}]})]
    assert differences(ours, theirs) == [Difference("one", "topics[0].error_code", "NONE", "INVALID_TXN_STATE")]


def test_a_step_a_field_and_a_list_entry_that_only_one_broker_has_are_differences() -> None:
    ours = [("both", {"a": 1, "list": [1]}), ("mine", 1)]
    theirs = [("both", {"a": 1, "b": 2, "list": [1, 2]}), ("theirs", 1)]
    assert differences(ours, theirs) == [
        Difference("both", "list", [1], [1, 2]),
        Difference("both", "b", NOT_THERE, 2),
        Difference("mine", "", 1, NOT_THERE),
        Difference("theirs", "", NOT_THERE, 1),
    ]


def test_a_listed_difference_is_no_problem_and_any_other_is() -> None:
    listed, other = Difference("step 1", "x.code", 0, 1), Difference("step 1", "x.offset", 0, 1)
    assert problems("a", "story", [listed], [_LISTED]) == []
    assert problems("a", "story", [listed, other], [_LISTED]) == [str(other)]
    assert problems("b", "story", [listed], [_LISTED]) == [str(listed)]
    assert problems("a", "another story", [listed], [_LISTED]) == [str(listed)]


def test_a_listed_difference_that_no_longer_occurs_is_a_problem() -> None:
    (said,) = problems("a", "story", [], [_LISTED])
    assert "gone" in said and "meant" in said
    assert problems("a", "another story", [], [_LISTED]) == []


def test_every_listed_difference_is_about_a_pair_and_scenarios_that_exist_and_says_why() -> None:
    names = [one.name for one in scenarios()]
    for known in KNOWN:
        assert any(fnmatchcase(pair, known.pairs) for pair in PAIRS), known
        for pattern in known.scenarios:
            assert any(fnmatchcase(name, pattern) for name in names), f"no scenario is called {pattern}"
        assert known.reason


def test_the_document_lists_every_known_difference_with_its_reason() -> None:
    text = DOCUMENT.read_text()
    assert with_table(text) == text, "run: python -m tests.differential --write-known"
    assert table_of(text).count("\n| ") == len(KNOWN)


def test_a_difference_that_the_document_lacks_is_noticed() -> None:
    text = DOCUMENT.read_text()
    line = next(line for line in text.splitlines() if KNOWN[-1].reason in line)
    assert with_table(text.replace(line + "\n", "")) == text


def test_what_is_by_chance_is_equal_in_two_transcripts_and_what_is_not_by_chance_is_kept() -> None:
    """Producer ids by order of appearance, names without their token, the broker's own times; offsets as they are."""

    def noted(first: int, second: int) -> list[Step]:
        play = Play(Connection("127.0.0.1:1"), False, new_token())
        said = [
            {"producer_id": second, "name": play.name("topic")},
            {"producer_id": first},
            {"producer_id": second},
        ]
        play.note("step", {"topics": said, "base_offset": 7, "error_code": 48, "throttle_time_ms": first})
        return play.transcript

    assert noted(1000, 2000) == noted(77, 5)
    assert noted(1000, 2000) != noted(1000, 1000)
    (step,) = noted(1000, 2000)
    assert step[1]["base_offset"] == 7
    assert step[1]["error_code"] == "INVALID_TXN_STATE"


def test_a_fetched_log_is_put_into_words_batch_by_batch_and_a_cut_one_at_the_end_is_left_out() -> None:
    who = Identity(7, 2)
    log = batch(b"a", b"b", who=who, sequence=5, transactional=True) + batch(b"c")
    first, second = records.read(log)
    assert (first["producer_id"], first["epoch"], first["sequence"]) == (7, 2, 5)
    assert (first["offsets"], first["values"], first["transactional"]) == ([0, 1], ["a", "b"], True)
    assert (second["producer_id"], second["values"]) == (-1, ["c"])
    assert records.read(log[:-1]) == [first]
    assert records.read(b"") == records.read(None) == []
