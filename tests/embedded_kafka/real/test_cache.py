"""The cache: only what is complete has its final name."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from embedded_kafka.real.cache import cache_dir, making


def test_the_cache_is_where_xdg_says(tmp_path: Path) -> None:
    assert cache_dir({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "kafka-eos"
    assert (tmp_path / "kafka-eos").is_dir()


def make_half_and_be_interrupted(final: Path) -> None:
    with making(final) as directory:
        assert directory is not None
        (directory / "half.jar").touch()
        raise KeyboardInterrupt


def test_an_interrupted_making_leaves_nothing_under_the_final_name(tmp_path: Path) -> None:
    final = tmp_path / "jars"
    with pytest.raises(KeyboardInterrupt):
        make_half_and_be_interrupted(final)

    assert not final.exists()
    with making(final) as directory:
        assert directory is not None
        assert list(directory.iterdir()) == [], "leftovers of the interrupted run"
    assert final.is_dir()


def test_what_is_complete_is_not_made_again(tmp_path: Path) -> None:
    final = tmp_path / "jars"
    with making(final) as directory:
        assert directory is not None
        (directory / "whole.jar").touch()

    with making(final) as directory:
        assert directory is None
    assert [path.name for path in final.iterdir()] == ["whole.jar"]


def test_of_two_at_once_one_makes_and_the_other_finds_it_made(tmp_path: Path) -> None:
    final = tmp_path / "jars"
    made: list[bool] = []
    first_is_inside, second_waits = threading.Event(), threading.Event()

    def second() -> None:
        first_is_inside.wait(10)
        second_waits.set()
        with making(final) as directory:
            made.append(directory is not None)

    thread = threading.Thread(target=second)
    thread.start()
    with making(final) as directory:
        made.append(directory is not None)
        first_is_inside.set()
        second_waits.wait(10)
    thread.join(10)

    assert made == [True, False]
