"""A token that is about to end begins no session: the broker would end the connection before it can be renewed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pyspark_kafka_eos.client.net.oauth.tokens import _good_for_s
from pyspark_kafka_eos.client.net.sessions import planned_ms


@pytest.mark.parametrize(
    ("lasts_s", "good_for_s"), [(3_600.0, 2_880.0), (20.0, 16.0), (15.0, 12.0), (6.0, 3.0), (2.0, 1.0)]
)
def test_a_token_is_used_up_to_its_refresh_factor_or_three_seconds_before_its_end(
    lasts_s: float, good_for_s: float
) -> None:
    assert _good_for_s(lasts_s, SimpleNamespace(refresh_factor=0.8)) == pytest.approx(good_for_s)  # type: ignore[arg-type]


def test_every_session_that_a_token_of_six_seconds_begins_has_time_for_its_renewal() -> None:
    good_for_s = _good_for_s(6.0, SimpleNamespace(refresh_factor=0.8))  # type: ignore[arg-type]
    for used_at_ms in range(0, round(good_for_s * 1000), 50):
        session_ms = min(5_000, 6_000 - used_at_ms)
        earliest, latest = 0.85 * planned_ms(session_ms), 0.95 * planned_ms(session_ms)
        assert earliest > 1_000 and latest <= session_ms - 1_700, (used_at_ms, session_ms)
