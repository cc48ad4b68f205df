"""Times without a zone (Spark's TIMESTAMP_NTZ) as instants, by the rules of Spark's own cast to TIMESTAMP.

Owns: the meaning of a zone's name, what becomes of a local time that a zone has twice or not at all.
Does not know: which zone a session has.
Invariants:
- Of a local time that comes twice the first one is meant; one that a zone leaves out is later by the gap.
- The result does not depend on which other times are in the same array.
Sources: java.time.ZonedDateTime.ofLocal, ZoneId.SHORT_IDS, Spark's guide "Datetime types" (session time zone).
"""

from __future__ import annotations

import functools
import re
from datetime import datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

_SECOND_US = 1_000_000
_DAY_S = 86_400
_CYCLE_YEARS = 400
"""After so many years the calendar repeats, weekdays included."""
_CYCLE_S = 146_097 * _DAY_S
_LAST_YEAR = 9_999
"""Python's. Later years are looked up as the same year of the last cycle, as a zone's last rule goes on for ever."""

_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")

_SHORT_IDS = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata", "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland", "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh",
    "EST": "-05:00", "MST": "-07:00", "HST": "-10:00",
    "Z": "+00:00", "UTC": "+00:00", "GMT": "+00:00", "UT": "+00:00",
}  # fmt: skip
"""Java's abbreviations. The IANA database has some of them with another meaning, such as EST."""


@functools.lru_cache(maxsize=16)
def zone_of(name: str) -> tzinfo:
    """The zone that Spark means by this name of `spark.sql.session.timeZone`; LookupError where this Python has
    none.
    """
    meant = _SHORT_IDS.get(name, name)
    offset = _OFFSET.fullmatch(meant)
    if offset is not None:
        sign, hours, minutes, seconds = offset.groups()
        ahead = timedelta(hours=int(hours), minutes=int(minutes or 0), seconds=int(seconds or 0))
        return timezone(-ahead if sign == "-" else ahead)
    try:
        return ZoneInfo(meant)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise LookupError(name) from error


def instants(local_us: Int64s, zone: tzinfo) -> Int64s:
    """Local times, in microseconds since 1970 on the zone's clock, as microseconds since 1970 in UTC."""
    seconds = local_us // _SECOND_US
    years = seconds.astype("datetime64[s]").astype("datetime64[Y]").astype(np.int64) + 1970
    result = local_us.copy()
    for year in np.unique(years):
        begins, offsets = _offsets_in(zone, int(year))
        of_year = years == year
        place = np.searchsorted(begins, seconds[of_year], side="right") - 1
        result[of_year] -= offsets[place] * _SECOND_US
    return result


@functools.lru_cache(maxsize=1024)
def _offsets_in(zone: tzinfo, year: int) -> tuple[Int64s, Int64s]:
    """Local seconds since 1970 from which on an offset holds, in one year, and these offsets in seconds.

    `datetime` takes the offset before a change for a time that the change repeats or leaves out (fold=0), and so does
    Java.
    """
    cycles = max(0, -(-(year - _LAST_YEAR) // _CYCLE_YEARS))
    known = max(1, year - cycles * _CYCLE_YEARS)
    # Additions below are on the zone's own clock.
    first = datetime(known, 1, 1, tzinfo=zone)
    begins, offsets = [0], [_offset(first)]
    for day in range(1, 367 if known < _LAST_YEAR else 365):
        # A zone changes its offset at most once in a day.
        now = _offset(first + timedelta(days=day))
        if now != offsets[-1]:
            begins.append(_change(first, (day - 1) * _DAY_S, day * _DAY_S))
            offsets.append(now)
    from_1970 = int(first.replace(tzinfo=timezone.utc).timestamp()) + cycles * _CYCLE_S
    return np.array(begins, dtype=np.int64) + from_1970, np.array(offsets, dtype=np.int64)


def _change(first: datetime, before: int, after: int) -> int:
    """The second between two, counted from `first`, from which on the later one's offset holds."""
    old = _offset(first + timedelta(seconds=before))
    while after - before > 1:
        middle = (before + after) // 2
        if _offset(first + timedelta(seconds=middle)) == old:
            before = middle
        else:
            after = middle
    return after


def _offset(local: datetime) -> int:
    offset = local.utcoffset()
    assert offset is not None
    return round(offset.total_seconds())


__all__ = ["instants", "zone_of"]
