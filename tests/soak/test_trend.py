"""What counts as growth."""

from __future__ import annotations

import math
import random

import pytest

from tests.soak.trend import trend

HOUR = [60.0 * minute for minute in range(61)]


def noisy(slope: float, noise: float, seed: int = 1) -> list[float]:
    chance = random.Random(seed)
    return [100 + slope * at / 3600 + chance.gauss(0, noise) for at in HOUR]


def test_a_straight_line_has_its_slope_for_an_hour_and_no_error() -> None:
    found = trend(HOUR, [7 + at / 3600 * 12 for at in HOUR])

    assert (found.mean, found.slope, found.error) == pytest.approx((13, 12, 0), abs=1e-9)
    assert found.grows(5)
    assert not found.grows(20)


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_no_growth_and_growth_is_found_in_it(seed: int) -> None:
    assert not trend(HOUR, noisy(0, 5, seed)).grows(0)
    assert trend(HOUR, noisy(20, 5, seed)).grows(0)


def test_a_figure_that_falls_does_not_grow() -> None:
    assert not trend(HOUR, [100 - at for at in HOUR]).grows(0)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_samples_have_no_slope(count: int) -> None:
    found = trend(HOUR[:count], [1.0] * count)

    assert math.isnan(found.slope)
    assert not found.grows(0)


def test_samples_without_their_times_are_refused() -> None:
    with pytest.raises(ValueError, match="2 times and 1 values"):
        trend([0, 1], [0])
