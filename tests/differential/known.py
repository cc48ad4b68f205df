"""Where the embedded broker differs from a real one, and why. Nothing else may, and what is here must.

Owns: the one list.
Does not know: how transcripts are compared (`compare`).
"""

from __future__ import annotations

from tests.differential.compare import Known

_EVERY = "*"
_ZOOKEEPER_LINE, _KRAFT_LINE = "3.9.1", "4.*"
_BEFORE_STRICT_MARKERS = "4.1.1*"

KNOWN: tuple[Known, ...] = (
    Known(
        _ZOOKEEPER_LINE,
        (
            "init-producer-id-ongoing", "init-producer-id-complete*", "init-producer-id-timedout",
            "init-producer-id-with-the-last-epoch", "epochs-run-out-by-fencing", "*-emptyagain", "one-client-after-another", "after-its-timeout",
        ),
        ("*",),
        "*transaction_start_time_ms",
        "3.9.1 goes on showing when the last transaction began at an id that has none open; 4.x and the embedded broker show none",
    ),
    Known(
        _ZOOKEEPER_LINE,
        ("transactional-batches-ongoing",),
        ("epoch+1: where it wrote before",),
        "*error_code",
        "3.9.1 asks the coordinator only until a partition has an open transaction, whatever the epoch; 4.x and the embedded "
        "broker ask again for another epoch, and so refuse the epoch before the sequence",
    ),
    Known(
        _ZOOKEEPER_LINE,
        ("transactional-batches-ongoing",),
        ("epoch*: where it wrote before",),
        "*log_start_offset",
        "so there the log refuses it, and says where it begins; 4.x and the embedded broker have it from the coordinator",
    ),
    Known(
        _ZOOKEEPER_LINE,
        ("offsets-under-another-epoch-newer",),
        ("*",),
        "*error_code",
        "the same for offsets: 3.9.1 takes those of an epoch that nobody was given, and fences the owner; 4.x and the embedded "
        "broker ask the coordinator",
    ),
    Known(
        _ZOOKEEPER_LINE,
        ("offsets-under-another-epoch-older",),
        ("stable?",),
        "*error_code",
        "3.9.1 forgets the producer's pending offset when it refuses a later one; 4.x and the embedded broker keep it",
    ),
    Known(
        _ZOOKEEPER_LINE,
        ("offsets-of-a-groups-members",),
        ("* of no group",),
        "*error_code",
        "a group that is not there: 3.9.1 says UNKNOWN_MEMBER_ID, 4.x and the embedded broker ILLEGAL_GENERATION",
    ),
    Known(
        _ZOOKEEPER_LINE,
        ("plain-offsets",),
        ("deleted 1", "deleted 9", "listed"),
        "*",
        "3.9.1 drops a group with its last offset at once; 4.x and the embedded broker do so when they clean up",
    ),
    Known(
        _ZOOKEEPER_LINE,
        ("topics-are-made",),
        ("twice in a request",),
        "topics",
        "3.9.1 answers once for each time that the name was given; 4.x and the embedded broker once",
    ),
    Known(
        _ZOOKEEPER_LINE,
        ("partitions-twice-*",),
        ("offsets",),
        "topics*",
        "3.9.1 refuses a partition that is named twice as often as it is named; 4.x and the embedded broker once",
    ),
    Known(
        _ZOOKEEPER_LINE,
        ("offsets-twice-*",),
        ("committed", "asked for", "removed"),
        "topics*",
        "3.9.1 answers for each partition once; 4.x and the embedded broker as often as it was named",
    ),
    Known(
        _ZOOKEEPER_LINE,
        ("topics-twice",),
        ("deleted*",),
        "responses",
        "3.9.1 removes a topic that is named twice; 4.x and the embedded broker refuse to",
    ),
    Known(
        _EVERY,
        ("epochs-run-out-by-initialisations",),
        ("to the last epoch, repeated",),
        "*",
        "a real broker trips over the repetition (UNKNOWN_SERVER_ERROR); the embedded one answers it as KIP-360 has it",
    ),
    Known(
        _EVERY,
        ("markers-where-nothing-is-open",),
        ("an epoch of -1",),
        "*error_code",
        "a real broker trips over a marker of epoch -1 (UNKNOWN_SERVER_ERROR); the embedded one refuses the epoch",
    ),
    Known(
        _EVERY,
        ("damaged-batches",),
        ("codec 5, *",),
        "*error_code",
        "a real broker trips over a codec that it does not have (UNKNOWN_SERVER_ERROR); the embedded one says so",
    ),
    Known(
        _EVERY,
        ("damaged-batches",),
        ("gzip bit without gzip*",),
        "*",
        "the embedded broker opens a batch only where its topic asks something of single records; elsewhere it takes what a reader cannot "
        "unpack",
    ),
    Known(
        _EVERY,
        ("configurations",),
        ("an unknown operation",),
        "*error_code",
        "a real broker trips over an operation that it does not have (UNKNOWN_SERVER_ERROR); the embedded one refuses it",
    ),
    Known(
        _EVERY,
        ("counts-that-lie-in-step",),
        ("plain: *",),
        "*",
        "the embedded broker opens a batch only where its topic asks something of single records; elsewhere it takes a count that "
        "contradicts the records",
    ),
    Known(
        _ZOOKEEPER_LINE,
        ("timestamps-far-ahead-by-default",),
        ("*",),
        "*",
        "message.timestamp.after.max.ms: 3.9.1 has no limit by default; 4.x and the embedded broker take an hour ahead",
    ),
    Known(
        _ZOOKEEPER_LINE,
        ("timestamps-out-of-range",),
        ("before: *",),
        "*",
        "the same: these topics set the other limit only",
    ),
    Known(
        _ZOOKEEPER_LINE,
        ("names-that-collide",),
        ("like it, and otherwise wrong",),
        "*error_code",
        "3.9.1 looks at a new topic's partitions before its name; 4.x and the embedded broker at the name first",
    ),
    Known(
        _KRAFT_LINE,
        ("names-that-collide",),
        ("both at once",),
        "[[]1[]]",
        "4.x looks for a collision with topics that are there only, so one request can make both; 3.9.1 and the embedded broker "
        "refuse the second",
    ),
    Known(
        _KRAFT_LINE,
        ("names-that-collide-by-asking",),
        ("at once", "later"),
        "*error_code",
        "4.x makes a topic that was asked for behind the answer, and never tells why it does not come (UNKNOWN_TOPIC_OR_PARTITION); "
        "3.9.1 and the embedded broker do (INVALID_TOPIC_EXCEPTION)",
    ),
    Known(
        _ZOOKEEPER_LINE,
        ("where-configurations-come-from", "configurations-of-new-topics"),
        ("*",),
        "*.configs[[]*[]].*value",
        "message.timestamp.after.max.ms: 3.9.1 has no limit by default; 4.x and the embedded broker take an hour ahead",
    ),
    Known(
        _EVERY,
        ("where-configurations-come-from",),
        ("of a broker",),
        "*.configs[[]2[]].*value",
        "group.max.size is 1000 by default, because nothing of the embedded broker is without a limit",
    ),
    Known(
        _EVERY,
        ("where-configurations-come-from",),
        ("of a broker",),
        "*.read_only",
        "some settings of a real broker can be changed while it runs; all of the embedded one are given at its start",
    ),
    Known(
        _ZOOKEEPER_LINE,
        ("where-configurations-come-from",),
        ("a group",),
        "*error_code",
        "3.9.1 has no configurations of groups; 4.x and the embedded broker have",
    ),
    Known(
        _KRAFT_LINE,
        ("where-configurations-come-from",),
        ("client metrics",),
        "*error_code",
        "4.x has configurations of client metrics; the embedded broker has those of topics, of groups and of itself",
    ),
    Known(
        _KRAFT_LINE,
        ("values-of-configurations",),
        ("segment.bytes = '1048575'",),
        "*error_code",
        "4.x wants segments of 1 MiB at least; 3.9.1 and the embedded broker take small ones, with which tests see segments roll",
    ),
    Known(
        _ZOOKEEPER_LINE,
        ("lists-that-grow-and-shrink",),
        ("*: an unknown one",),
        "*error_code",
        "3.9.1 trips over a name that it does not know (UNKNOWN_SERVER_ERROR); 4.x and the embedded broker refuse it",
    ),
    Known(
        _ZOOKEEPER_LINE,
        ("odd-changes-of-configurations",),
        ("a bad name*",),
        "*error_code",
        "3.9.1 looks for a topic before it looks at the name; 4.x and the embedded broker say INVALID_TOPIC_EXCEPTION",
    ),
    Known(
        _EVERY,
        ("odd-changes-of-configurations",),
        ("AlterConfigs: one topic twice",),
        "*",
        "a real broker trips over a resource that is named twice in AlterConfigs and gives no answer; the embedded one refuses both, as "
        "both do in IncrementalAlterConfigs",
    ),
    Known(
        _KRAFT_LINE,
        ("configurations-of-new-topics",),
        ("some",),
        "*value",
        "4.x shows a new topic's values as they were written (TRUE), and later as it reads them (true); the embedded broker always "
        "does the latter",
    ),
    Known(
        _KRAFT_LINE,
        ("a-member-joins-and-goes-*",),
        ("described",),
        "*member_assignment",
        "4.x shows a member's last assignment while the next generation is being completed; 3.9.1 and the embedded broker show none",
    ),
    Known(
        _EVERY,
        ("joins-that-are-odd",),
        ("one protocol twice: with its id",),
        "*",
        "a real broker trips over a protocol that is named twice and gives no answer; the embedded one takes it once",
    ),
    Known(
        _ZOOKEEPER_LINE,
        ("offsets-that-are-odd",),
        ("one partition twice", "one topic twice"),
        "topics*",
        "3.9.1 answers once for what is named twice; 4.x and the embedded broker as often as it was named",
    ),
    Known(
        _ZOOKEEPER_LINE,
        ("offsets-that-are-odd",),
        ("a generation without a member, v9, no group",),
        "*error_code",
        "a group that is not there, version 9: 3.9.1 says ILLEGAL_GENERATION, 4.x and the embedded broker GROUP_ID_NOT_FOUND",
    ),
    Known(
        _ZOOKEEPER_LINE,
        ("fetches-of-offsets-that-are-odd",),
        ("no partition, *", "one partition twice, *", "one topic twice, *"),
        "*topics*",
        "3.9.1 answers once for what is named twice, and not for topics without partitions; 4.x and the embedded broker as asked",
    ),
    Known(
        _ZOOKEEPER_LINE,
        ("fetches-of-offsets-that-are-odd",),
        ("no group, v8",),
        "*",
        "3.9.1 trips over a request for no group and gives no answer; 4.x and the embedded broker answer for none",
    ),
    Known(
        _ZOOKEEPER_LINE,
        ("groups-are-deleted-together",),
        ("offsets: one twice",),
        "topics*",
        "3.9.1 answers once for what is named twice; 4.x and the embedded broker as often as it was named",
    ),
    Known(
        _ZOOKEEPER_LINE,
        ("markers-that-say-their-version-*",),
        ("*",),
        "*",
        "WriteTxnMarkers 2 (KIP-1228): 3.9.1 does not have it; 4.3.1, 4.4.0 and the embedded broker do",
    ),
    Known(
        _BEFORE_STRICT_MARKERS,
        ("markers-that-say-their-version-*",),
        ("*",),
        "*",
        "WriteTxnMarkers 2 (KIP-1228): 4.1.1 does not have it; 4.3.1, 4.4.0 and the embedded broker do",
    ),
    Known(
        _ZOOKEEPER_LINE,
        ("versions-that-nobody-has",),
        ("ApiVersions", "ApiVersions v3"),
        "own*",
        "ApiVersions 5 (KIP-1242): 3.9.1 does not have it; 4.4.0 and the embedded broker do",
    ),
    Known(
        _ZOOKEEPER_LINE,
        ("a-broker-that-is-named",),
        ("*",),
        "*",
        "ApiVersions 5 (KIP-1242): 3.9.1 does not have it; 4.4.0 and the embedded broker do",
    ),
    Known(
        _BEFORE_STRICT_MARKERS,
        ("versions-that-nobody-has",),
        ("ApiVersions", "ApiVersions v3"),
        "own*",
        "ApiVersions 5 (KIP-1242): 4.1.1 does not have it; 4.4.0 and the embedded broker do",
    ),
    Known(
        _BEFORE_STRICT_MARKERS,
        ("a-broker-that-is-named",),
        ("*",),
        "*",
        "ApiVersions 5 (KIP-1242): 4.1.1 does not have it; 4.4.0 and the embedded broker do",
    ),
    Known(
        "4.4.0, upgrade",
        ("the-last-consumer-member-leaves",),
        ("c is alive",),
        "error_code",
        "only members of the classic protocol are left, and the policy does not let the group become theirs: Kafka leaves the partitions of "
        "the others without an owner until one of them joins again; the embedded broker asks them to",
    ),
)  # fmt: skip
