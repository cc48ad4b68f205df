"""Where the embedded broker differs from a real one, and why. Nothing else may, and what is here must.

Owns: the one list.
Does not know: how transcripts are compared (`compare`).
"""

from __future__ import annotations

from tests.differential.compare import Known

_EVERY = "*"
_ZOOKEEPER_LINE = "3.9.1"

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
        "the embedded broker does not unpack what clients packed (compression bombs), so it takes what a reader cannot unpack",
    ),
    Known(
        _EVERY,
        ("configurations",),
        ("an unknown operation",),
        "*error_code",
        "a real broker trips over an operation that it does not have (UNKNOWN_SERVER_ERROR); the embedded one refuses it",
    ),
)  # fmt: skip
