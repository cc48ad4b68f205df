"""A YAML file that is none, or that would take the memory, is one sentence with the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_core.errors import OptionsError
from pyspark_kafka_eos.options.yaml_file import read_fields

PLAIN = "sink:\n  topic: flights\n"
LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
)


def refusal(tmp_path: Path, content: bytes | str) -> str:
    path = tmp_path / "job.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(OptionsError) as caught:
        read_fields(path)
    assert caught.value.message.startswith(str(path))
    assert "\n" not in caught.value.message
    return caught.value.message.removeprefix(str(path))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (PLAIN.encode("utf-16"), ", line 1: this is not UTF-8: save the file as UTF-8"),
        ("a: b\nsink: {topic: Zürich}".encode("latin-1"), ", line 2: this is not UTF-8: save the file as UTF-8"),
        ("a: b\nsink: \x07", ", line 2: this is not YAML: a control character"),
        ("from: 2020-99-99", ", line 1, column 7: this is not YAML: a date or a number that does not exist; text stands in quotes"),
        (f"from: {'9' * 5_000}", ", line 1, column 7: this is not YAML: a date or a number that does not exist; text stands in quotes"),
        ("sink: &s\n  topic: *s", ", line 1, column 7: this is not YAML: an alias stands for what contains it"),
        ("sink: &s [1, *s]", ", line 1, column 7: this is not YAML: an alias stands for what contains it"),
        (LAUGHS, "more than 10,000 values"),
        ("x: " + "[" * 5_000, ": fields are nested more deeply than in any file of options"),
        ("sink: {topic: a}\nsink: {topic: b}", ", line 2, column 1: this is not YAML: sink stands twice"),
        ("sink:\n  topic: a\n  topic: b", ", line 3, column 3: this is not YAML: topic stands twice"),
        ("? [a]\n: b", "unhashable key"),
        ("a: !!python/object:os.system x", "could not determine a constructor"),
        (b"a: " + b"x" * 1_000_000, " has more than 1,000,000 bytes, so it is no file of options"),
        ("a: b\n---\nc: d", "but found another document"),
        ("", ": expected fields such as source: and sink:, found none"),
    ],
)  # fmt: skip
def test_what_is_no_file_of_options_is_refused_by_its_line(tmp_path: Path, content: bytes | str, told: str) -> None:
    message = refusal(tmp_path, content)

    assert told == message if told.startswith((",", ":", " has")) else told in message


def test_what_yaml_offers_for_saying_things_once_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(
        b"\xef\xbb\xbfbase: &base {acks: all}\nother: &other {x: 1}\nsink:\n  <<: [*base, *other]\n  acks: '1'\nsource:\n  <<: *base\n"
    )

    fields = read_fields(path)

    assert fields["sink"] == {"acks": "1", "x": 1} and fields["source"] == {"acks": "all"}
