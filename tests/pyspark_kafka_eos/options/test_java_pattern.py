"""Java's patterns in Python's words. (That Java finds the same is shown in tests/migration, by Java.)"""

from __future__ import annotations

import warnings

import pytest

from pyspark_kafka_eos.options.java_pattern import to_python


@pytest.mark.parametrize(
    ("pattern", "found", "not_found"),
    [
        ("orders", ["orders", "old.orders.2"], ["order"]),
        ("^orders$", ["orders"], ["orders2"]),
        ("flights[.](us|eu)", ["flights.us"], ["flights-us"]),
        (r"\Aa.b\z", ["a.b", "axb"], ["a.b2"]),
        (r"\Qa.b\E+", ["a.bbb"], ["axb"]),
        (r"\Qa.b", ["a.b"], ["axb"]),
        (r"(?<name>ab)\k<name>", ["abab"], ["ab"]),
        (r"\p{Alpha}\p{Digit}{2}", ["a12"], ["a1", "112"]),
        (r"[\p{Upper}_]x", ["Ax", "_x"], ["ax"]),
        (r"(?i)ORDERS", ["orders"], ["orde"]),
        (r"^\w+\.v\d$", ["a_1.v2"], ["a-1.v2"]),
        (r"^[^.]+$", ["abc"], ["a.b"]),
        (r"a(?!b)", ["ac"], ["ab"]),
        ("^x{2,3}$", ["xx", "xxx"], ["x", "xxxx"]),
        ("[a&b|]", ["a", "b"], ["c"]),
    ],
)
def test_a_pattern_finds_what_java_finds(pattern: str, found: list[str], not_found: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = to_python(pattern)

    assert [name for name in found + not_found if compiled.search(name)] == found


@pytest.mark.parametrize(
    ("pattern", "complaint"),
    [
        ("[a-z&&[^b]]", "&&"),
        ("[+--]", "doubled -"),
        ("[--a]", "doubled -"),
        ("[a[bc]]", "within brackets"),
        ("[]a]", "as the first"),
        ("[a", "not closed"),
        (r"\p{IsGreek}", "IsGreek"),
        (r"\x41", r"\\x"),
        (r"\G", r"\\G"),
        ("a{,3}", "quantifier"),
        ("(?x) a", "flags"),
        ("a(?i)b", "flags"),
        ("a)", "parenthesis"),
        ("*a", "repeat"),
        ("a\\", "backslash"),
    ],
)
def test_what_has_no_equal_is_refused_with_the_reason(pattern: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        to_python(pattern)


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        ("^[8-\uffff]+$", "9a", True), ("^[8-\uffff]+$", "7", False), ("^[^é]$", "e", True), ("^[é-ü]$", "e", False),
        ("^[aé]$", "a", True), ("^[aé]$", "e", False), ("^[a-é]+$", "az", True), ("^[a-é]+$", "A", False),
    ],
)  # fmt: skip
def test_what_is_not_ascii_in_brackets_is_in_no_name_and_in_no_table(pattern: str, name: str, found: bool) -> None:
    ours = to_python(pattern)

    assert (ours.search(name) is not None) is found
    assert ours.pattern.isascii()


def test_a_range_that_begins_behind_its_end_is_refused_there_too() -> None:
    with pytest.raises(ValueError, match="range"):
        to_python("[é-a]")
