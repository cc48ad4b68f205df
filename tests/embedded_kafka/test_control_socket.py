"""Whoever may command a broker: its own user, whatever the umask is and whatever the data directory's mode was."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from embedded_kafka.serving import serve
from kafka_core.errors import OptionsError

UMASKS = (0o000, 0o022, 0o077, 0o777)


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def modes_while_it_runs(directory: Path) -> tuple[int, int]:
    """Those of the control socket and of the directory that it is in."""

    async def run() -> tuple[int, int]:
        async with serve(directory, [0], None, {}) as ready:
            control = Path(ready["control"])
            assert control.is_socket()
            _, writer = await asyncio.open_unix_connection(control)
            writer.close()
            return mode(control), mode(control.parent)

    return asyncio.run(run())


@pytest.mark.parametrize("mask", UMASKS, ids=oct)
def test_the_control_socket_is_its_owners_alone_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    if mask == 0o777 and os.getuid() != 0:
        pytest.skip("with this umask only the superuser can use what it makes")
    with umask(mask):
        assert modes_while_it_runs(tmp_path / "data") == (0o600, 0o700)


@pytest.mark.parametrize("mask", UMASKS, ids=oct)
def test_a_socket_whose_path_is_too_long_is_its_owners_alone_too(tmp_path: Path, mask: int) -> None:
    if mask == 0o777 and os.getuid() != 0:
        pytest.skip("with this umask only the superuser can use what it makes")
    with umask(mask):
        assert modes_while_it_runs(tmp_path / ("long" * 25)) == (0o600, 0o700)


@pytest.mark.parametrize("before", [0o755, 0o775, 0o2775])
def test_a_data_directory_that_others_may_enter_stays_so_and_the_socket_is_out_of_their_reach(
    tmp_path: Path, before: int
) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    directory.chmod(before)
    assert modes_while_it_runs(directory) == (0o600, 0o700)
    assert mode(directory) == before


@pytest.mark.parametrize("before", [0o777, 0o1777])
def test_a_data_directory_that_others_may_write_to_is_refused_and_stays_as_it_is(tmp_path: Path, before: int) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    directory.chmod(before)

    with pytest.raises(
        OptionsError, match=r"data belongs to another user, or others may write to it; nothing was started"
    ):
        modes_while_it_runs(directory)

    assert mode(directory) == before and list(directory.iterdir()) == []


def test_a_directory_for_the_socket_that_others_may_enter_is_closed_to_them(tmp_path: Path) -> None:
    modes_while_it_runs(tmp_path)
    (tmp_path / "control").chmod(0o777)
    assert modes_while_it_runs(tmp_path) == (0o600, 0o700)


def test_a_link_in_place_of_the_sockets_directory_is_refused_and_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    data = tmp_path / "data"
    data.mkdir()
    (data / "control").symlink_to(elsewhere)
    before = mode(elsewhere)
    with pytest.raises(OptionsError, match="control"):
        modes_while_it_runs(data)
    assert mode(elsewhere) == before and list(elsewhere.iterdir()) == []


def test_a_data_directory_that_the_broker_makes_is_its_owners_alone(tmp_path: Path) -> None:
    with umask(0o000):
        modes_while_it_runs(tmp_path / "new")
    assert mode(tmp_path / "new") == 0o700


def test_nothing_of_the_socket_is_left_when_the_broker_has_stopped(tmp_path: Path) -> None:
    modes_while_it_runs(tmp_path)
    assert list((tmp_path / "control").iterdir()) == []
