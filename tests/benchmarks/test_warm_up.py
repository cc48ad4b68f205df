"""When a benchmark's runs begin to count, how long they are, and in which order they come."""

from __future__ import annotations

from benchmarks.__main__ import order, passes
from benchmarks.catalogue import VARIANTS
from benchmarks.warm_up import LARGEST_TOPIC_BYTES, LEAST_S, MOST, WarmUp

THREE = VARIANTS[:3]
SOURCES = [each for each in VARIANTS if each.reads]


def _warmed(*costs: float, records: int = 1_000_000, seconds: float = 1.0) -> WarmUp:
    warm = WarmUp(records, 100)
    for cost in costs:
        warm.note(seconds, records, cost)
    return warm


def test_a_way_is_warm_once_its_cpu_per_record_no_longer_falls() -> None:
    assert not _warmed(14.3).over
    assert not _warmed(14.3, 5.4).over
    assert not _warmed(14.3, 5.4, 3.8).over
    assert _warmed(14.3, 5.4, 3.8, 3.7).steady
    # Dearer than the run before it, and cheaper than any of them: noise, not a fall.
    assert not _warmed(14.3, 3.8, 5.4, 3.0).over


def test_two_runs_are_never_enough() -> None:
    assert not _warmed(2.0, 2.0).over
    assert _warmed(2.0, 2.0, 2.0).over


def test_a_way_that_gets_cheaper_without_end_is_measured_all_the_same_and_is_not_called_steady() -> None:
    warm = _warmed(*(0.5**run for run in range(MOST)))

    assert (warm.over, warm.steady) == (True, False)


def test_a_run_repeats_its_data_until_it_is_long_enough() -> None:
    warm = _warmed(1.0, seconds=0.4)

    assert warm.passes * 0.4 >= LEAST_S
    assert _warmed(1.0, seconds=100.0).passes == 1


def test_a_run_does_not_fill_the_memory() -> None:
    warm = WarmUp(400_000, 1024)
    warm.note(0.001, 400_000, 1.0)

    assert 0 < warm.passes * 400_000 * 1024 <= LARGEST_TOPIC_BYTES


def test_rounds_count_once_every_way_is_warm_and_each_has_every_way_in_an_order_of_its_own() -> None:
    warm = {each.name: WarmUp(1_000_000, 100) for each in THREE}
    seen = []
    for number, variant in order(THREE, warm, 6, seed=1):
        if number == 0:
            # The first one needs the longest.
            falls = 0.5 if variant is THREE[0] and len(warm[variant.name].costs) < 5 else 1.0
            before = warm[variant.name].costs[-1:] or [8.0]
            warm[variant.name].note(1.0, 1_000_000, before[0] * 1_000_000 * falls)
        seen.append((number, variant.name))

    counted = [[name for number, name in seen if number == each] for each in range(1, 7)]
    assert [sorted(each) for each in counted] == [sorted(each.name for each in THREE)] * 6
    assert len({tuple(each) for each in counted}) > 1
    assert [number for number, _ in seen] == sorted(number for number, _ in seen)
    assert all(each.over for each in warm.values())


def test_the_same_seed_gives_the_same_order() -> None:
    def counted(seed: int) -> list[tuple[int, str]]:
        warm = {each.name: _warmed(1.0, 1.0, 1.0) for each in THREE}
        return [(number, each.name) for number, each in order(THREE, warm, 5, seed)]

    assert counted(1) == counted(1)
    assert counted(1) != counted(2)


def test_all_sources_read_the_topic_that_is_long_enough_for_the_fastest() -> None:
    warm = {each.name: _warmed(1.0, seconds=2.0 / (at + 1)) for at, each in enumerate(SOURCES)}

    longest = max(each.passes for each in warm.values())
    assert {passes(each, SOURCES, warm) for each in SOURCES} == {longest}
