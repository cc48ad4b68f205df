"""Why a broker in a child process did not start: the parent raises what the child would have."""

from __future__ import annotations

import pytest

from embedded_kafka.child.start_error import found_in, line_of
from kafka_core import errors
from kafka_core.errors import ExactlyOnceError, StorageInUse

CLASSES = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, ExactlyOnceError)]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_is_found_again_with_its_class_its_message_and_its_facts(kind: type[ExactlyOnceError]) -> None:
    error = kind('a "port"\nis taken', {"port": 9092, "names": ("a", ("b", 1.5)), "known": None})

    found = found_in(f"a warning\n{line_of(error)}\nanother line\n")

    assert type(found) is kind
    assert found is not None and (found.message, found.facts) == (error.message, error.facts)


def test_a_child_that_was_killed_has_said_no_error() -> None:
    assert found_in("a warning\n") is None
    assert found_in(line_of(StorageInUse("it was killed while it wrote this"))) is None
