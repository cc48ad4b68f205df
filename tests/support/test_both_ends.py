"""Which process of xdist is given which file."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.both_ends import FromBothEnds

FILES = [f"test_{number}.py" for number in range(8)]
TESTS = [f"{file}::test_{number}" for file in FILES for number in range(3)]


class Process:
    """Of xdist, as its controller sees it: it keeps what it is told to run."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.shutting_down = False
        self.given: list[int] = []

    def send_runtest_some(self, numbers: list[int]) -> None:
        self.given += numbers

    def shutdown(self) -> None:
        self.shutting_down = True

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(TESTS[number].partition("::")[0] for number in self.given))


@pytest.fixture
def processes() -> list[Process]:
    return [Process(f"gw{number}") for number in range(3)]


def scheduled(config: pytest.Config, processes: list[Process]) -> FromBothEnds:
    told = SimpleNamespace(
        getvalue=lambda _: ["popen"] * len(processes),
        option=SimpleNamespace(loadscopereorder=False),
        hook=config.hook,
    )
    made = FromBothEnds(cast(Any, told))
    for each in processes:
        made.add_node(cast(Any, each))
        made.add_node_collection(cast(Any, each), TESTS)
    made.schedule()
    return made


def test_the_last_process_has_the_files_of_the_end_and_the_others_those_of_the_front(
    pytestconfig: pytest.Config, processes: list[Process]
) -> None:
    scheduled(pytestconfig, processes)

    assert [each.files for each in processes] == [["test_0.py"], ["test_1.py"], ["test_7.py"]]


def test_each_file_is_taken_once_whichever_process_is_quick(
    pytestconfig: pytest.Config, processes: list[Process]
) -> None:
    made = scheduled(pytestconfig, processes)
    ran: list[int] = []

    while waiting := [each for each in processes if set(each.given) - set(ran)]:
        # The last one that still has tests is twice as quick as the others.
        for each in (*waiting, waiting[-1]):
            for number in [number for number in each.given if number not in ran][:1]:
                ran.append(number)
                made.mark_test_complete(cast(Any, each), number)

    assert sorted(ran) == list(range(len(TESTS)))
    assert sorted(file for each in processes for file in each.files) == FILES
    assert processes[2].files == sorted(processes[2].files, reverse=True)
    assert made.tests_finished
