"""What the connector keeps as JSON, and what anybody with the right to write may have written instead: the ledger, the
turns, Spark's offset log, offsets of a group, positions that are pasted into an option.
"""

from __future__ import annotations

import random
from typing import Any

from kafka_core.errors import ExactlyOnceError
from pyspark_kafka_eos.commit.ledger import notes
from pyspark_kafka_eos.commit.ledger.parts import Collection, DecisionPart, Manifest, cut
from pyspark_kafka_eos.model import Decision, committed
from pyspark_kafka_eos.model.decision import planned_ms
from pyspark_kafka_eos.slot import turn_log
from pyspark_kafka_eos.spark.offset_json import position_of, to_json
from pyspark_kafka_eos.spark.offset_log import begins_elsewhere, kafka_sources, lower_offsets, parse_offsets
from tests.formats.kept import DECISION, KEPT
from tests.fuzz.changes import changed_bytes, changed_json_text
from tests.fuzz.target import Stateless, judged


class _Json(Stateless):
    """Texts that are changed from golden ones."""

    originals: tuple[bytes, ...]

    def made(self, chance: random.Random) -> bytes:
        """One of them, changed."""
        return changed_json_text(chance, chance.choice(self.originals))

    def read(self, value: bytes) -> None:
        """The product's reading, and what it then does with the value."""
        raise NotImplementedError

    def played(self, case: bytes) -> str:
        """Read, or refused by an error of this package."""
        try:
            self.read(case)
        except ExactlyOnceError as error:
            return judged(error)
        return "read"


def _golden(*prefixes: str) -> tuple[bytes, ...]:
    return tuple(each.golden for each in KEPT if each.name.startswith(prefixes))


class Decisions(_Json):
    """The records under a pipeline's own key."""

    name = "decisions"
    reads = "the ledger's decisions, whole and in parts"
    originals = _golden("decision")

    def made(self, chance: random.Random) -> Any:
        """A record, or the parts of one decision, some of which are not as they were."""
        if chance.random() < 0.8:
            return super().made(chance)
        manifest, parts = cut(DECISION.to_bytes(), chance.choice((400, 700, 2_000)))
        listed = [[part.digest, part.number, part.text] for part in parts]
        for _ in range(chance.choice((0, 1, 1, 2))):
            at = chance.randrange(len(listed))
            if chance.random() < 0.5:
                listed[at][1] = chance.choice((0, 1, len(parts), 10**6))
            else:
                listed[at][2] = changed_bytes(chance, listed[at][2].encode()).decode(errors="replace")
        chance.shuffle(listed)
        return [manifest.digest, manifest.parts, listed]

    def read(self, value: Any) -> None:
        """As the ledger's reader does, and what a commit asks of it."""
        if isinstance(value, list):
            digest, count, parts = value
            collection = Collection(Manifest(digest, count))
            collection.add_parts(DecisionPart(*part) for part in parts)
            value = collection.value()
        elif Manifest.from_record(value) is not None:
            return
        decision = Decision.from_bytes(value)
        again = decision.to_bytes()
        assert Decision.from_bytes(again).to_bytes() == again
        _ = (
            decision.ends,
            decision.records,
            decision.routes,
            decision.in_one_transaction,
            planned_ms(decision.source_offsets),
        )
        decision.repaired_by(decision.seals)


class Notes(_Json):
    """The records beside them."""

    name = "notes"
    reads = "the ledger's notes"
    originals = _golden("note-")

    def read(self, value: bytes) -> None:
        """Read, and written again."""
        note = notes.from_bytes(value)
        assert notes.from_bytes(notes.to_bytes(note)) == note
        notes.note_key(b"totals", note)


class Turns(_Json):
    """The log through which tasks take turns."""

    name = "turns"
    reads = "the records of the turns topic"
    originals = _golden("turns")

    def read(self, value: bytes) -> None:
        """Read, and written again."""
        number, events = turn_log.from_json(value)
        assert turn_log.from_json(turn_log.to_json(number, events)) == (number, events)


_METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1700000000100,"conf":{"spark.sql.shuffle.partitions":"2"}}'


class OffsetLog(_Json):
    """A file of a checkpoint."""

    name = "offset log"
    reads = "files of Spark's offset log, and positions in options"
    originals = (
        *_golden("source-offsets"),
        b'{"in":{"0":23,"1":4}}',
        b'{"orders":{"0":1}}',
        b'{"logOffset":3}',
        b"-",
        b"7",
    )

    def made(self, chance: random.Random) -> bytes:
        """A whole file; the change is in a line, or in the file."""
        lines = [chance.choice(self.originals) for _ in range(chance.choice((1, 1, 2)))]
        version: bytes = chance.choice((b"v1", b"v2"))
        if chance.random() < 0.8:
            at = chance.randrange(len(lines))
            lines[at] = changed_json_text(chance, lines[at])
        if version == b"v2":
            lines = [b"%d:" % number + line for number, line in enumerate(lines)]
        text = b"\n".join((version, _METADATA.encode(), *lines))
        return text if chance.random() < 0.8 else changed_bytes(chance, text)

    def read(self, value: bytes) -> None:
        """As a commit and a start do."""
        logged = parse_offsets(value.decode("utf-8", "replace"), "offsets/7")
        for position in kafka_sources(logged):
            body = to_json(position)
            assert position_of(body) == position, body
        lower_offsets(kafka_sources(logged))
        begins_elsewhere(logged, logged, None)
        begins_elsewhere(logged, logged, logged)


class GroupOffsets(_Json):
    """What a consumer group's offset has beside it."""

    name = "group offsets"
    reads = "the metadata of a group's offsets"
    originals = _golden("group-offset")

    def read(self, value: bytes) -> None:
        """As a source's start by a group does. A text of another client is no claim, and no error."""
        committed(23, 4, value.decode("utf-8", "replace"), "totals")
