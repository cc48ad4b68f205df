"""Who makes a directory, and how."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_core.own_directories import PRIVATE_DIRECTORY, changeable_by_others


def test_what_is_missing_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    assert changeable_by_others(tmp_path / "a" / "b", by_groups=True) is None

    assert [(tmp_path / each).stat().st_mode & 0o777 for each in ("a", "a/b")] == [PRIVATE_DIRECTORY] * 2


def test_a_directory_that_another_process_makes_in_the_same_moment_serves_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir = Path.mkdir

    def late(path: Path, *given: Any, **named: Any) -> None:
        mkdir(path, mode=PRIVATE_DIRECTORY)
        mkdir(path, *given, **named)

    monkeypatch.setattr(Path, "mkdir", late)

    assert changeable_by_others(tmp_path / "a" / "b", by_groups=True) is None


def test_a_file_in_its_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")

    assert changeable_by_others(tmp_path / "a" / "b", by_groups=True) == tmp_path / "a"
