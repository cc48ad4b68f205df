"""A second user of the machine has prepared every directory that he may write to: he can neither fill nor replace what
machine code is loaded from.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.two_users import ONLY_ROOT, SECOND, VICTIM, owned, shared_folder
from tests.support.two_users import play as played

pytestmark = [pytest.mark.processes, ONLY_ROOT]

PLAY = """
import numba
from pyspark_kafka_eos.records import jit

digest = jit._sources_digest()

def choose():
    found = jit.cache_directory()
    return None if found is None else str(found)

chosen = as_user(VICTIM, choose)
print(json.dumps([chosen, [] if chosen is None else as_user(SECOND, lambda: attack(chosen))]))
"""


def play(tmp: Path, **environment: object) -> tuple[str | None, list[str]]:
    """The directory that the first user took, and what the second one could do to it. That he reads machine code of an
    image is no harm.
    """
    chosen, managed = played(PLAY, tmp, **environment)  # type: ignore[misc]
    return chosen, [each for each in managed if not each.startswith(("listed ", "read "))]


@pytest.fixture
def shared() -> Iterator[Path]:
    """As /tmp is."""
    with shared_folder() as folder:
        yield folder


def test_a_temporary_directory_that_nobody_prepared_serves(shared: Path) -> None:
    chosen, managed = play(shared)

    assert chosen is not None and chosen.startswith(str(shared / f"pyspark-kafka-eos-{VICTIM}"))
    assert managed == []


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o755])
def test_a_directory_that_the_second_user_made_first_is_not_used(shared: Path, mode: int) -> None:
    owned(shared / f"pyspark-kafka-eos-{VICTIM}", SECOND, mode)

    assert play(shared) == (None, [])


def test_a_link_that_the_second_user_made_leads_nowhere_of_his(shared: Path) -> None:
    his = owned(shared / "his", SECOND, 0o777)
    (shared / f"pyspark-kafka-eos-{VICTIM}").symlink_to(his)

    assert play(shared) == (None, [])
    assert list(his.iterdir()) == []


@pytest.mark.parametrize("variable", ["NUMBA_CACHE_DIR", "XDG_CACHE_HOME"])
def test_a_place_below_a_directory_of_the_second_user_is_passed_over(shared: Path, variable: str) -> None:
    own = owned(owned(shared / "his", SECOND, 0o755) / "victims", VICTIM, 0o700)

    chosen, managed = play(shared, **{variable: own})

    assert chosen is not None and chosen.startswith(str(shared / f"pyspark-kafka-eos-{VICTIM}"))
    assert managed == []


@pytest.mark.parametrize(("user", "mode"), [(0, 0o777), (VICTIM, 0o770), (VICTIM, 0o777)])
def test_a_place_below_a_directory_that_others_may_change_is_passed_over(shared: Path, user: int, mode: int) -> None:
    open_to_others = owned(shared / "open", user, mode)

    chosen, managed = play(shared, NUMBA_CACHE_DIR=open_to_others / "own")

    assert chosen is not None and chosen.startswith(str(shared / f"pyspark-kafka-eos-{VICTIM}"))
    assert managed == []


@pytest.mark.parametrize("left_open", ["folder", "file"])
def test_machine_code_that_others_may_write_is_not_loaded_from_an_image(shared: Path, left_open: str) -> None:
    image = owned(shared.parent / "image", 0, 0o755)
    taken, managed = play(shared, NUMBA_CACHE_DIR=image)
    # Root's directory, which the first user cannot fill, so his own serves.
    assert taken is not None and not taken.startswith(str(image)) and managed == []
    folder = owned(owned(image / Path(taken).name, 0, 0o755) / "kernels_0", 0, 0o755)
    code = folder / "hash.nbi"
    code.write_bytes(b"root's")
    code.chmod(0o644)
    assert play(shared, NUMBA_CACHE_DIR=image) == (str(folder.parent), [])

    (folder if left_open == "folder" else code).chmod(0o777)
    chosen, managed = play(shared, NUMBA_CACHE_DIR=image)

    assert chosen is not None and not chosen.startswith(str(image))
    assert managed == []
