"""A broker that does not start: its error is in the message, however much it writes while it shuts down."""

from __future__ import annotations

from pathlib import Path

from embedded_kafka.real import LocalKafka

SHUT_DOWN = "10:00:02 INFO shutting down\n" * 1_000


def last_words(tmp_path: Path, log: str) -> str:
    broker = LocalKafka(data_dir=tmp_path)
    broker._dir = tmp_path
    (tmp_path / "broker-0.log").write_text(log)
    return broker._tail(0)


def test_the_first_error_stands_before_the_end_of_the_log(tmp_path: Path) -> None:
    error = "10:00:01 ERROR Exiting\njava.net.BindException: Address already in use\n"
    words = last_words(tmp_path, f"10:00:00 INFO starting\n{error}{SHUT_DOWN}")

    assert words.startswith(f"its first error:\n{error}")
    assert words.endswith("the end of its log:\n" + SHUT_DOWN[-4_000:])


def test_a_log_whose_end_has_the_error_or_that_has_none_is_shown_once(tmp_path: Path) -> None:
    for end in ("10:00:03 ERROR Exiting\n", "10:00:03 INFO waiting\n"):
        words = last_words(tmp_path, SHUT_DOWN + end)
        assert words.startswith("the end of its log:\n")
        assert words.count(end) == 1
