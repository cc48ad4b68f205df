"""A jar that is not the one that was tested does not run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from embedded_kafka.child.errors import LocalError
from embedded_kafka.real import NEWEST_KAFKA, NEWEST_ZOOKEEPER_KAFKA, OLDEST_KAFKA, pins
from embedded_kafka.real.cache import cache_dir
from embedded_kafka.real.maven import fetch
from embedded_kafka.real.pins import PINS, hashes, require_pinned, text_of


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "kafka-0"
    directory.mkdir()
    for name in ("a.jar", "b.jar"):
        (directory / name).write_bytes(name.encode())
    file = tmp_path / "jars.sha256"
    file.write_text(text_of(hashes([directory])))
    monkeypatch.setattr(pins, "PINS", file)
    pins._pins.cache_clear()
    return directory


@pytest.fixture(autouse=True)
def _forget() -> object:
    yield
    pins._pins.cache_clear()


def test_the_same_jars_are_taken(jars: Path) -> None:
    require_pinned(jars)


def test_another_jar_under_the_name_is_refused(jars: Path) -> None:
    (jars / "a.jar").write_bytes(b"other")

    with pytest.raises(LocalError, match=r"was tested with: a\.jar; nothing of it was run; remove the directory"):
        require_pinned(jars)


def test_a_jar_more_is_refused_for_it_would_be_on_the_class_path(jars: Path) -> None:
    (jars / "c.jar").write_bytes(b"")

    with pytest.raises(LocalError, match=r"was tested with: c\.jar;"):
        require_pinned(jars)


def test_a_jar_less_is_refused(jars: Path) -> None:
    (jars / "b.jar").unlink()

    with pytest.raises(LocalError, match=r"was tested with: b\.jar;"):
        require_pinned(jars)


def test_a_version_without_pins_is_taken_and_said(jars: Path, caplog: pytest.LogCaptureFixture) -> None:
    other = jars.with_name("kafka-9.9.9")
    other.mkdir()
    (other / "x.jar").write_bytes(b"")

    with caplog.at_level("INFO"):
        require_pinned(other)

    assert "the jars of kafka-9.9.9 have no pinned hashes" in caplog.text


@pytest.mark.parametrize("version", [NEWEST_KAFKA, NEWEST_ZOOKEEPER_KAFKA, OLDEST_KAFKA])
def test_the_versions_that_tests_run_are_pinned(version: str) -> None:
    lines = [line for line in PINS.read_text().splitlines() if f"  kafka-{version}/" in line]

    assert len(lines) > 30 and all(re.match(r"[0-9a-f]{64}  [\w.-]+/[\w.-]+\.jar$", line) for line in lines)
    assert sum("/kafka-clients-" in line for line in lines) == 1


def test_what_is_in_the_cache_already_is_judged_too(
    jars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cached = cache_dir() / "jars" / jars.name
    cached.parent.mkdir(parents=True)
    jars.rename(cached)
    (cached / "a.jar").write_bytes(b"other")

    with pytest.raises(LocalError, match=r"a\.jar"):
        fetch(cached.name, (), None)  # type: ignore[arg-type]
