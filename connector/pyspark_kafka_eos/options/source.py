"""The source's own options: names, defaults, meanings, and the checks of several options together.

Owns: the rows that are Spark's or ours on the source; Spark's rules for combinations, in streams and in
batches.
Does not know: Kafka's own names (`kafka`), the order in which a mapping is checked (`parsing`), the cluster.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, Json, TypeAdapter

from pyspark_kafka_eos.options.java_pattern import to_python
from pyspark_kafka_eos.options.kinds import POSITIVE, SERVICE_CREDENTIAL, TOPIC, UNPACKED, Use, unused
from pyspark_kafka_eos.options.values import FLAG, LONG_TEXT, PATTERN, TEXT, Kind, one_of, quoted, whole_number

Mode = Literal["stream", "batch"]
ByPartition = dict[str, dict[int, int]]
Bound = Literal["earliest", "latest"] | ByPartition
"""Where reading begins or ends: everywhere alike, or topic -> partition -> offset (-2 earliest, -1 latest)."""

GROUP = "group"
"""The value of startingOffsets for the offsets that a consumer group has committed."""

Start = Bound | Literal["group"]

Times = int | ByPartition
"""Milliseconds since 1970: one for all partitions, or topic -> partition -> time."""

DEFAULT_TRIGGER_DELAY_MS = 15 * 60 * 1000
"""Spark's default of maxTriggerDelay, 15 minutes."""

_PartitionNumber = Annotated[int, Field(ge=0)]


def _as_logged(given: dict[str, dict[int, int]]) -> dict[str, dict[int, int]]:
    """Topics with their offsets, and the entries that a checkpoint's offsets have besides (`spark.offset_json`): no
    topic's name has a colon.
    """
    if any((":" in name) == bool(offsets) for name, offsets in given.items()):
        raise ValueError("a topic without partitions, or an entry with some")
    return given


_Offsets = Annotated[dict[str, dict[_PartitionNumber, Annotated[int, Field(ge=-2)]]], AfterValidator(_as_logged)]
_PartitionTimes = Annotated[dict[_PartitionNumber, Annotated[int, Field(ge=0)]], Field(min_length=1)]
OFFSETS = Kind(
    'earliest, latest, or JSON such as {"topic":{"0":23,"1":-2}} with -2 for earliest and -1 for latest',
    TypeAdapter(Literal["earliest", "latest"] | Json[_Offsets]),
)
STARTING_OFFSETS = Kind(
    f"{OFFSETS.expected}, or group for the committed offsets of kafka.group.id",
    TypeAdapter(Literal["earliest", "latest", "group"] | Json[_Offsets]),
)
_TIMES = Kind(
    'JSON such as {"topic":{"0":1700000000000}} with milliseconds since 1970',
    TypeAdapter(Json[dict[str, _PartitionTimes]]),
)
_TIME = whole_number("a time in milliseconds since 1970", 0, 2**63 - 1)
_NUMBERS = Annotated[list[_PartitionNumber], Field(min_length=1)]
_ASSIGN = Kind(
    'JSON such as {"topicA":[0,1],"topicB":[2]}',
    TypeAdapter(Annotated[Json[dict[str, _NUMBERS]], Field(min_length=1)]),
)

_DELAY_UNITS_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def _delay_ms(text: str) -> int:
    """Spark's time strings: a number with a unit; milliseconds if there is no unit."""
    match = re.fullmatch(r"(\d{1,12})\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _DELAY_UNITS_MS:
        raise ValueError(text)
    return int(match[1]) * _DELAY_UNITS_MS[match[2]]


_DELAY = Kind("a time such as 500ms, 30s, 15m or 1h", TypeAdapter(Annotated[int, BeforeValidator(_delay_ms)]))
_PACE = whole_number("a whole number", 0)
_PACES = "the client retries until kafka.delivery.timeout.ms by itself"

SOURCE: dict[str, Use] = {
    "subscribe": Use("subscribe", LONG_TEXT, "one of these three",
          "topics to read, separated by commas"),
    "subscribePattern": Use("subscribe_pattern", PATTERN, "one of these three",
          "Java pattern; topics with a match anywhere in their name are read, topics created later included; never the ledger and the "
          "topic of turns, which subscribe reads"),
    "assign": Use("assign", _ASSIGN, "one of these three",
          f"partitions to read: {_ASSIGN.expected}"),
    "startingOffsets": Use("starting_offsets", STARTING_OFFSETS, "latest; in a batch earliest",
          f"where a new query begins: {STARTING_OFFSETS.expected}"),
    "startingTimestamp": Use("starting_timestamp", _TIME, "none",
          "a new query begins at the first record with this time or later, in every partition; overrides the next two"),
    "startingOffsetsByTimestamp": Use("starting_by_partition", _TIMES, "none",
          f"the same for each partition; overrides startingOffsets: {_TIMES.expected}"),
    "startingOffsetsByTimestampStrategy": Use("no_match", one_of("error", "latest"), "error",
          "if no record is as new as the starting timestamp: error stops the query, latest begins at the end"),
    "endingOffsets": Use("ending_offsets", OFFSETS, None,
          "where a batch ends (not for streams), like startingOffsets but never earliest"),
    "endingTimestamp": Use("ending_timestamp", _TIME, "none",
          "a batch ends before the first record with this time or later; overrides the other two"),
    "endingOffsetsByTimestamp": Use("ending_by_partition", _TIMES, "none",
          "the same for each partition; overrides endingOffsets"),
    "maxOffsetsPerTrigger": Use("max_offsets_per_trigger", POSITIVE, "no limit",
          "most offsets per micro-batch, over all partitions"),
    "minOffsetsPerTrigger": Use("min_offsets_per_trigger", POSITIVE, "no wait",
          "a micro-batch waits for this many offsets, at most for maxTriggerDelay; not with availableNow"),
    "maxTriggerDelay": Use("max_trigger_delay_ms", _DELAY, "15m",
          "longest wait for minOffsetsPerTrigger"),
    "minPartitions": Use("min_partitions", whole_number("a whole number", 1), "one task per Kafka partition",
          "least number of tasks, approximately; large ranges of offsets are split"),
    "maxRecordsPerPartition": Use("max_records_per_partition", POSITIVE, "no limit",
          "most offsets per task; larger ranges are split"),
    "includeHeaders": Use("include_headers", FLAG, None, "true adds the headers column"),
    "failOnDataLoss": Use("fail_on_data_loss", FLAG, None,
          "true stops the query if offsets that it needs are gone"),
    "max.unpacked.bytes": UNPACKED,
    "adopt.cluster": Use("adopt_cluster", TEXT, "none",
          "id of the cluster that the checkpoint's offsets are of, where the topics of this cluster are mirrors with the same offsets: "
          "the query goes on here"),
    "client.rack.variable": Use("rack_variable", TEXT, "none",
          "environment variable of each executor that names its rack; where it is set, instead of kafka.client.rack"),
    "groupIdPrefix": unused(LONG_TEXT, "the source joins no consumer group"),
    "kafkaConsumer.pollTimeoutMs": unused(_PACE, "kafka.request.timeout.ms bounds one answer"),
    "fetchOffset.numRetries": unused(_PACE, _PACES),
    "fetchOffset.retryIntervalMs": unused(_PACE, _PACES),
}  # fmt: skip

SOURCE_NOT_YET: dict[str, str] = {**SERVICE_CREDENTIAL}
"""Options of Spark's Kafka source that are not supported -> the alternative."""

_WHO = ("subscribe", "subscribe_pattern", "assign")
_WHO_NAMES = "subscribe, subscribePattern, assign"
_IN_STREAMS_ONLY = {
    "max_offsets_per_trigger": "maxOffsetsPerTrigger",
    "min_offsets_per_trigger": "minOffsetsPerTrigger",
    "max_trigger_delay_ms": "maxTriggerDelay",
}
_ENDINGS = {"ending_offsets": "endingOffsets", "ending_by_partition": "endingOffsetsByTimestamp",
            "ending_timestamp": "endingTimestamp"}  # fmt: skip

_log = logging.getLogger(__name__)


def check_source(found: dict[str, Any], problems: list[str], mode: Mode | None) -> None:
    """Check several options together, and turn the user's values into the fields of the options. The three
    ways to name a beginning become two, by Spark's precedence (a time for all, times by partition, offsets);
    likewise the ends.

    `mode` None checks only the rules that hold for streams and batches alike: Spark asks for the columns
    before it names the mode.
    """
    _check_topics(found, problems)
    if mode == "stream":
        _refuse_ends(found, problems)
    found["starting_times"] = _times(found, "starting")
    found["ending_times"] = _times(found, "ending")
    found["fail_on_no_match"] = found.pop("no_match", "error") != "latest"
    if mode == "batch":
        _check_batch(found, problems)
    if "starting_offsets" not in found:
        found["starting_offsets"] = "earliest" if mode == "batch" else "latest"
    for side in ("starting", "ending"):
        offsets = found.get(f"{side}_offsets")
        if isinstance(offsets, dict):
            found[f"{side}_entries"] = tuple(name for name in offsets if ":" in name)
            offsets = {name: each for name, each in offsets.items() if ":" not in name}
            found[f"{side}_offsets"] = offsets
        if isinstance(offsets, dict) and found[f"{side}_times"] is None:
            _check_names(f"{side}Offsets", offsets, found, problems)
        if isinstance(found[f"{side}_times"], dict):
            _check_names(f"{side}OffsetsByTimestamp", found[f"{side}_times"], found, problems)
    _check_group(found, problems)
    least, most = found.get("min_offsets_per_trigger"), found.get("max_offsets_per_trigger")
    if least is not None and most is not None and least > most:
        problems.append(
            f"The value of minOffsetPerTrigger({least}) is higher than the maxOffsetsPerTrigger({most}): no batch could "
            "ever be large enough"
        )


def _check_group(found: dict[str, Any], problems: list[str]) -> None:
    """kafka.group.id and kafka.auto.offset.reset belong to startingOffsets=group."""
    if found["starting_offsets"] == GROUP and found["starting_times"] is None:
        if found.get("group_id") is None:
            problems.append(
                "startingOffsets is group, but kafka.group.id is missing: it names the group whose committed offsets the "
                "query begins at (the sink commits to its option offsets.group, by default the pipeline's name)"
            )
        return
    if found.get("offset_reset") is not None:
        problems.append(
            "kafka.auto.offset.reset has no meaning here: startingOffsets sets where a new query begins; only with "
            "startingOffsets=group it says what partitions without a committed offset begin at"
        )
    if found.get("group_id") is not None:
        found["ignored"] = (
            *found.get("ignored", ()),
            "kafka.group.id (the source joins no consumer group; startingOffsets=group begins at its offsets)",
        )


def _times(found: dict[str, Any], side: str) -> Times | None:
    everywhere = found.pop(f"{side}_timestamp", None)
    by_partition: ByPartition | None = found.pop(f"{side}_by_partition", None)
    return by_partition if everywhere is None else everywhere


def _check_topics(found: dict[str, Any], problems: list[str]) -> None:
    given = [name for name in _WHO if name in found]
    if not given:
        problems.append(
            f"One of the following options must be specified for Kafka source: {_WHO_NAMES}; none of them is given"
        )
    elif len(given) > 1:
        problems.append(
            f"Only one of the following options can be specified for Kafka source: {_WHO_NAMES}; keep the intended one"
        )
    if found.get("subscribe") is not None:
        names = (part.strip() for part in found["subscribe"].split(","))
        topics = tuple(dict.fromkeys(name for name in names if name))
        if not topics:
            problems.append(
                "No topics to subscribe to as specified value for option 'subscribe' is "
                f"'{found['subscribe']}': name one"
            )
        for topic in topics:
            TOPIC.read("a topic in subscribe", topic, problems)
        found["subscribe"] = topics
    if found.get("subscribe_pattern") is not None:
        try:
            to_python(found["subscribe_pattern"])
        except ValueError as error:
            problems.append(
                f"subscribePattern is {quoted(found['subscribe_pattern'])}: {error} cannot be used here; write it with "
                "characters, classes, groups and quantifiers, or list the topics in subscribe"
            )
    if found.get("assign") is not None:
        for topic in found["assign"]:
            TOPIC.read("a topic in assign", topic, problems)
        found["assign"] = {topic: tuple(sorted(set(each))) for topic, each in found["assign"].items()}


def _check_names(option: str, given: ByPartition, found: Mapping[str, Any], problems: list[str]) -> None:
    """The JSON must name exactly the topics (with assign: the partitions) that are read: Spark requires all
    of them."""
    if found.get("subscribe"):
        asked, whose = set(found["subscribe"]), "subscribe"
    elif found.get("assign"):
        asked, whose = set(found["assign"]), "assign"
    else:
        return  # only the cluster can list the topics that a pattern matches
    if set(given) != asked:
        problems.append(
            f"{option} names the topics {', '.join(sorted(given)) or '(none)'}, "
            f"but {whose} names {', '.join(sorted(asked))}: they must be the same"
        )
    elif whose == "assign":
        for topic, numbers in found["assign"].items():
            if set(given[topic]) != set(numbers):
                problems.append(
                    f"{option} names the partitions {sorted(given[topic])} of {topic}, but assign names "
                    f"{sorted(numbers)}: they must be the same"
                )


def _refuse_ends(found: Mapping[str, Any], problems: list[str]) -> None:
    problems += [
        f"{'ending offset' if name == 'endingOffsets' else 'ending timestamp'} not valid in streaming queries: leave "
        f"{name} out; trigger(availableNow=True) reads all present records and stops"
        for field, name in _ENDINGS.items()
        if field in found
    ]


def _check_batch(found: dict[str, Any], problems: list[str]) -> None:
    """Spark's rules for batches: beginning and end are known places."""
    start, end = found.get("starting_offsets"), found.get("ending_offsets")
    if found["starting_times"] is not None:
        start = None
    if found["ending_times"] is not None:
        end = None
    if start == "latest":
        problems.append("starting offset can't be latest for batch queries on Kafka: there would be nothing to read")
    if end == "earliest":
        problems.append("ending offset can't be earliest for batch queries on Kafka: there would be nothing to read")
    if isinstance(start, dict):
        problems += [f"startingOffsets for {where} can't be latest for batch queries on Kafka"
                     for where, offset in _flat(start).items() if offset == -1]  # fmt: skip
    if isinstance(end, dict):
        problems += [f"ending offset for {where} can't be earliest for batch queries on Kafka"
                     for where, offset in _flat(end).items() if offset == -2]  # fmt: skip
    _check_order("offset", start, end, problems)
    _check_order("timestamp", found["starting_times"], found["ending_times"], problems)
    for field, name in _IN_STREAMS_ONLY.items():
        if found.pop(field, None) is not None:
            _log.warning("%s option ignored in batch queries", name)


def _check_order(what: str, start: Any, end: Any, problems: list[str]) -> None:
    if isinstance(start, int) and isinstance(end, int) and start > end:
        problems.append(f"The specified start {what} {start} is greater than the end {what} {end}")
    if not (isinstance(start, dict) and isinstance(end, dict)):
        return
    first, last = _flat(start), _flat(end)
    if set(first) != set(last):
        problems.append(
            f"The specified start {what}s and end {what}s should have the same topic-partitions: start names "
            f"{', '.join(sorted(first))}, end names {', '.join(sorted(last))}"
        )
        return
    problems += [
        f"The specified start {what} {first[where]} is greater than the end {what} {last[where]} for {where}"
        for where in first
        # Negative offsets stand for the ends of the partition, which are not known here.
        if first[where] > last[where] >= 0
    ]


def _flat(by_topic: ByPartition) -> dict[str, int]:
    return {f"{topic}-{number}": value for topic, each in by_topic.items() for number, value in each.items()}
