"""A planted change is found by its definition and its tokens, fails where the code has moved, and is gone when its
context is.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_core.values import TopicPartition
from pyspark_kafka_eos.model import ids
from tests.support.planting import Change, CodeMoved, Planted

SOURCE = """
LIMIT = 5


def other():
    return first(1)


class Book:
    SIZE: int = 3

    @property
    def size(self):
        return self.SIZE

    @size.setter
    def size(self, value):
        self.written(value)  # a comment, with a ")"
        if value:
            first(
                value,
                "a, b",
            )

    def twice(self):
        first(2)
        first(2)


def first(number):
    return number
"""


def changed(names: str, old: str, new: str) -> str:
    return Change(f"package.book:{names}", old, new).applied_to(SOURCE)


@pytest.mark.parametrize(
    ("names", "old", "new", "before", "after"),
    [
        ("other", "first(1)", "1", "return first(1)", "return 1"),
        ("LIMIT", "5", "6", "LIMIT = 5", "LIMIT = 6"),
        ("Book.SIZE", "3", "4", "SIZE: int = 3", "SIZE: int = 4"),
        ("Book.size", "return self.SIZE", "return 0", "return self.SIZE", "return 0"),
        ("Book.size", "self.written(value)\nif value:", "if True:", 'self.written(value)  # a comment, with a ")"\n        if value:', "if True:"),
        ("Book.size", 'first(value, "a, b")', "pass", 'first(\n                value,\n                "a, b",\n            )', "pass"),
        ("first", "return number", "", "return number", ""),
    ],
)  # fmt: skip
def test_a_text_is_replaced_in_its_definition_alone(names: str, old: str, new: str, before: str, after: str) -> None:
    assert SOURCE.count(before) == 1
    assert changed(names, old, new) == SOURCE.replace(before, after)


def test_further_lines_are_indented_as_beside_the_first() -> None:
    text = changed("Book.size", "self.written(value)", "if value:\n    self.written(value)\nelse:\n    return")

    assert "        if value:\n            self.written(value)\n        else:\n            return  # a comment" in text


def test_lines_behind_a_deeper_first_one_stand_further_out() -> None:
    text = changed("Book.size", 'first(value, "a, b")', "    return\nself.written(0)")

    assert "        if value:\n            return\n        self.written(0)\n" in text


@pytest.mark.parametrize(
    ("names", "old", "word"),
    [
        ("gone", "return", "there is no package.book:gone"),
        ("Book.gone", "return", "there is no package.book:Book.gone"),
        ("other.inner", "return", "there is no package.book:other.inner"),
        ("other", "first(2)", "0 times"),
        ("other", "irst(1)", "0 times"),
        ("other", "", "0 times"),
        ("Book.twice", "first(2)", "2 times"),
        ("Book.size", '"a,b"', "0 times"),
    ],
)
def test_a_change_of_code_that_has_moved_is_refused(names: str, old: str, word: str) -> None:
    with pytest.raises(CodeMoved, match=word):
        changed(names, old, "pass")


def test_a_module_that_is_gone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CodeMoved, match="there is no module"):
        Planted("nothing", "package.book:first", "return", "pass").files(tmp_path)


def test_several_changes_of_one_file_are_all_in_it(tmp_path: Path) -> None:
    path = tmp_path / "connector" / "package" / "book.py"
    path.parent.mkdir(parents=True)
    path.write_text(SOURCE)
    also = (Change("package.book:LIMIT", "5", "6"), Change("package.book:other", "first(1)", "1"))

    texts = Planted("two", "package.book:first", "return number", "return 0", also).files(tmp_path)

    assert texts == {
        path: SOURCE.replace("LIMIT = 5", "LIMIT = 6").replace("first(1)", "1").replace("return number", "return 0")
    }
    assert path.read_text() == SOURCE


# ---- in this process


SLOT_ID = "pyspark_kafka_eos.model.ids:slot_transactional_id"


def test_a_change_is_there_for_whoever_holds_the_function_and_gone_with_its_context() -> None:
    held = ids.slot_transactional_id

    with Planted("one id for all slots", SLOT_ID, 'f"{prefix_of(pipeline)}{slot}"', 'f"{prefix_of(pipeline)}0"').here():
        assert held("pipe", 3) == ids.slot_transactional_id("pipe", 3) == "pipe:0"

    assert held("pipe", 3) == "pipe:3"


def test_a_method_and_a_propertys_getter_are_changed_in_this_process() -> None:
    where = TopicPartition("topic", 1)
    also = (Change("pyspark_kafka_eos.model.ids:PipelineId.slot", "int(self.last)", "-1"),)

    with Planted(
        "two",
        "kafka_core.values:TopicPartition.__str__",
        'f"{self.topic}-{self.partition}"',
        "self.topic",
        also,
    ).here():
        assert str(where) == "topic"
        assert ids.PipelineId("pipe", "3").slot == -1

    assert (str(where), ids.PipelineId("pipe", "3").slot) == ("topic-1", 3)


@pytest.mark.parametrize(
    ("where", "old", "new", "word"),
    [
        (SLOT_ID, "gone", "", "0 times"),
        (SLOT_ID, "slot: int", "slot: str", "the same with this as without"),
        ("pyspark_kafka_eos.model.ids:BATCH", '"batch"', '"whole"', "is no function"),
    ],
)
def test_what_this_process_cannot_have_is_refused(where: str, old: str, new: str, word: str) -> None:
    with pytest.raises(CodeMoved, match=word), Planted("nothing", where, old, new).here():
        raise AssertionError("it was planted")
