"""Regular expressions of subscriptions: RE2's syntax, the whole name, and no expression that makes the broker wait."""

from __future__ import annotations

import re
import time

import pytest

from embedded_kafka.groups.patterns import compiled
from embedded_kafka.refusals import Refused
from kafka_core.protocol.error_codes import Code

NAMES = [
    "",
    "a",
    "b",
    "ab",
    "abc",
    "aab",
    "a.b",
    "a-b",
    "A",
    "orders",
    "orders-1",
    "orders.eu",
    "Orders_2",
    "a1",
    "]",
    "-",
]
SHARED = [
    "a", "ab|a", "a*b", "a+", "a?b", "(a|b)c?", "(?:ab)+", "a{2}b", "a{1,2}b", "a{0}", "(a*)*", "[abc]+", "[^a]", "[a-c]*",
    "[.\\-a-b]+", "orders.*", "^orders$", "orders-\\d+", "\\w+", "\\W", "[\\d]", "\\borders\\b.*", "a\\.b", "(?i)orders.*",
    "(?i:o)rders_2", ".*?b", "(a|)", "|a", "[]a]", "a\\Bb", "\\x61b", "(?P<name>a)b", "[-a]", "o(?i)RDERS", "\\Aa\\Z", "()", "",
]  # fmt: skip
"""Expressions of RE2 that Python's `re` understands alike."""


@pytest.mark.parametrize("expression", SHARED)
def test_an_expression_matches_the_whole_name_as_elsewhere(expression: str) -> None:
    # Python wants a flag at the start, or for a group; the end of a text is \Z there, and \z in RE2.
    python = re.compile(expression.replace("o(?i)RDERS", "o(?i:RDERS)"))
    pattern = compiled(expression.replace("\\Z", "\\z"))

    assert [pattern.matches(name) for name in NAMES] == [python.fullmatch(name) is not None for name in NAMES]


@pytest.mark.parametrize(
    ("expression", "name", "matches"),
    [
        ("[[:alpha:]]+", "abc", True),
        ("[[:^alpha:]]+", "abc", False),
        ("\\Qa.b\\E", "a.b", True),
        ("\\Qa.b\\E", "axb", False),
        ("\\p{Lu}\\pL*", "Orders", True),
        ("\\P{L}", "1", True),
        ("\\x{6f}", "o", True),
        ("a{2,}", "aaaa", True),
        ("a{2,}", "a", False),
        ("a{", "a{", True),
    ],
)
def test_what_only_re2_has(expression: str, name: str, matches: bool) -> None:
    assert compiled(expression).matches(name) is matches


@pytest.mark.parametrize(
    "expression",
    ["(", ")", "a)", "(a", "[a", "[b-a]", "a**", "*", "a{2}{3}", "a{1001}", "a{3,2}", "(?=a)", "(?!a)", "(?<=a)", "\\1", "\\",
     "\\y", "[[:foo:]]", "\\p{Greek}", "(((a{100}){100}){100})", "(" * 200 + ")" * 200],
)  # fmt: skip
def test_what_re2_refuses_and_what_is_too_large_is_refused_with_kafkas_code(expression: str) -> None:
    with pytest.raises(Refused) as refused:
        compiled(expression)

    assert refused.value.code is Code.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize("expression", ["(a+)+b", "(a|a)*b", "(a*)*b", "(a?){100}a{100}b", "(.*)*c"])
def test_an_expression_that_would_take_others_hours_takes_a_second_of_this_process_at_most(expression: str) -> None:
    begun = time.process_time()

    assert not compiled(expression).matches("a" * 249)

    # Python's own takes longer than the universe is old for the first.
    assert time.process_time() - begun < 1
