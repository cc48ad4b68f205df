"""The errors of Produce that are not retriable, and which exception the caller gets for each.

Owns: the error for each Produce code that is not retried, the row (or this machine's clock) that a batch was refused
for, the errors for an answer about other partitions and for removed records.
Does not know: which batches are in flight, what is sent again.
Invariants: each message states what happens to the micro-batch and what to change.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kafka_core import runtime
from kafka_core.errors import (
    AbortableError,
    AuthorizationFailed,
    ExactlyOnceError,
    Fact,
    InvalidRow,
    ProducerFenced,
    ProtocolViolation,
    RecordTooLarge,
    WrongClock,
)
from kafka_core.protocol import messages as m
from kafka_core.protocol.error_codes import Action, Code, name_of
from kafka_core.values import TopicPartition
from pyspark_kafka_eos.client.missing_rights import to_grant
from pyspark_kafka_eos.client.requests.admin import AHEAD, APART, BACK, MAX_BYTES, POLICY
from pyspark_kafka_eos.model.said_times import moment
from pyspark_kafka_eos.records import decode

_LONGEST_KEY = 200
"""Characters of a key that an error names."""

_SETTINGS: dict[int, str] = {
    Code.INVALID_TIMESTAMP: f"{BACK}, {AHEAD}, {APART}",
    Code.INVALID_RECORD: f"{POLICY}=compact needs keys; the broker may check schemas",
}
"""What a topic has that makes a leader refuse a record."""

Bytes = bytes | bytearray | memoryview


def outcome(transactional_id: str | None) -> str:
    """What becomes of the records that were sent, without a transaction too."""
    if transactional_id is None:
        return "what was acknowledged stays written, the rest is not sent"
    return "the transaction is aborted, no record of it is visible"


@dataclass(frozen=True)
class RefusedBatch:
    """A batch that a leader refused for good: the code, the broker's text, which records it names (KIP-467, from
    Produce v8 on), and whether the records' time is that of this machine's clock.
    """

    where: TopicPartition
    code: int
    detail: str
    named: tuple[tuple[int, str], ...]
    data: Bytes
    machine_time: bool = False

    @staticmethod
    def from_answer(where: TopicPartition, answer: m.Message, data: Bytes, *, machine_time: bool) -> RefusedBatch:
        """From a partition's part of a Produce answer. `data`: the batch as it was sent, empty where it is no longer
        held.
        """
        named = tuple(
            (int(each.batch_index), str(each.batch_index_error_message or ""))
            for each in getattr(answer, "record_errors", None) or ()
        )
        return RefusedBatch(
            where, answer.error_code, getattr(answer, "error_message", None) or "", named, data, machine_time
        )

    def error(self, action: Action, transactional_id: str | None) -> ExactlyOnceError:
        """Of the class of who has to act."""
        name, ends = name_of(self.code), outcome(transactional_id)
        facts: dict[str, Fact] = {
            "topic": self.where.topic,
            "partition": str(self.where),
            "transactional_id": transactional_id,
            "code": name,
        }
        more = f" ({self.detail})" if self.detail else ""
        said = f"{self.where} answered {name}{more}"
        if action is Action.FENCED:
            return ProducerFenced(
                f"{said}: a newer attempt, or the coordinator after the transaction timeout, raised the epoch, or somebody "
                "else wrote there under this producer id; the records of this attempt are aborted",
                facts,
            )
        if self.code in (Code.MESSAGE_TOO_LARGE, Code.RECORD_LIST_TOO_LARGE):
            size = len(self.data) or -1
            return RecordTooLarge(
                f"{self.where} rejects a batch of {size} bytes ({name}): it exceeds the topic's "
                f"{MAX_BYTES}; {ends}; raise that setting or lower kafka.batch.size",
                {**facts, "size_bytes": size},
            )
        if self.code in (Code.INVALID_RECORD, Code.INVALID_TIMESTAMP):
            by_clock = self.machine_time and self.code == Code.INVALID_TIMESTAMP
            return self._of_the_clock(ends) if by_clock else self._of_a_row(ends, facts)
        if action is Action.AUTHORIZE:
            return AuthorizationFailed(f"{said}; grant {to_grant(m.ProduceRequest.API_KEY, self.code)}; {ends}", facts)
        if action is Action.BUG:
            return ProtocolViolation(f"{said}, which is not a valid answer to Produce; {ends}", facts)
        if action is Action.REFUSE:
            act = _ACTS.get(self.code, "write to another topic, or have the broker take such records")
            return InvalidRow(
                f"{said}: it takes no such batch from this job, also not the next time; {ends}; {act}", facts
            )
        act = "the next attempt writes the records again"
        if self.code == Code.UNKNOWN_SERVER_ERROR:
            act += "; where it is refused as well, the broker's log of this moment has the cause"
        return AbortableError(f"{said}; {ends}; {act}", facts)

    def _of_the_clock(self, ends: str) -> WrongClock:
        index, message = self.named[0] if self.named else (0, "")
        stamp = self._found(index).get("timestamp_ms")
        return wrong_clock(
            self.where, "records without a time of their own", stamp, message or self.detail, f"; {ends}"
        )

    def _of_a_row(self, ends: str, facts: dict[str, Fact]) -> InvalidRow:
        index, message = self.named[0] if self.named else (-1, "")
        facts |= {
            "refused": len(self.named) or None,
            "reason": message or self.detail or None,
        }
        facts |= self._found(index)
        which = "a row" if self.named else "rows (the answer does not say which)"
        clock = ""
        if self.code == Code.INVALID_TIMESTAMP:
            clock = ", or the clock of the broker or of the driver's machine where that one is wrong"
        return InvalidRow(
            f"the leader of {self.where} refuses {which}: {message or self.detail or name_of(self.code)}; {ends}; correct the row, or what "
            f"the topic takes ({_SETTINGS[self.code]}){clock}; where this client may read the topic's settings (DESCRIBE_CONFIGS), such rows are found "
            "before they are sent, and dead.letter.topic takes them",
            facts,
        )

    def _found(self, index: int) -> dict[str, Fact]:
        """Key and time of a record of the batch."""
        try:
            records = decode(self.data, include_headers=False)
            key, stamp = records.key[index].as_py(), int(records.timestamp_ms[index])
        except (ExactlyOnceError, IndexError):
            return {}
        if not 0 <= index < len(records):
            return {}
        text = None if key is None else key.decode("utf-8", "replace")[:_LONGEST_KEY]
        return {"key": text, "timestamp_ms": stamp}


_ACTS: dict[int, str] = {
    Code.UNSUPPORTED_COMPRESSION_TYPE: "choose another kafka.compression.type",
    Code.UNSUPPORTED_FOR_MESSAGE_FORMAT: "raise the topic's message.format.version",
    Code.INVALID_TOPIC_EXCEPTION: "write to another topic: this one is the brokers' own",
    Code.POLICY_VIOLATION: "change what its policy refuses, or the policy",
}
"""Refused batches that are no single row's fault -> what to do."""


def wrong_clock(where: TopicPartition, what: str, stamp: Fact, said: str, ends: str = "") -> WrongClock:
    """The error for records whose time is that of this machine's clock, where the leader does not take that time.

    `what` names them; `stamp`: their time, where it is known; `said`: by the leader; `ends`: what becomes of the
    others.
    """
    ms = stamp if type(stamp) is int else int(runtime.time() * 1000)
    code = Code.INVALID_TIMESTAMP.name
    return WrongClock(
        f"the clock of the machine that wrote {what} shows {moment(ms)}, and the leader of {where} does not take that time: {said or code}"
        f"{ends}; set that clock right, or the broker's where that one is wrong; the topic's {_SETTINGS[Code.INVALID_TIMESTAMP]} say how far "
        "apart the two may be",
        {
            "topic": where.topic,
            "partition": str(where),
            "code": code,
            "host": runtime.host_name(),
            "machine_time_ms": ms,
            "reason": said or None,
        },
    )


def removed(where: TopicPartition, first: int, begins: int, transactional_id: str | None) -> AbortableError:
    """The error for records that were removed while their transaction was open. `begins`: where the partition's log
    begins.
    """
    return AbortableError(
        f"records that this task wrote to {where} were removed before their transaction ended: its first one had offset {first}, and the "
        f"log begins at {begins} by now; {outcome(transactional_id)}; the next attempt writes them again; retention (retention.ms, "
        f"retention.bytes) or DeleteRecords removed them: raise the retention of topic {where.topic!r} if this repeats",
        {"partition": str(where), "first_offset": first, "log_start_offset": begins, "transactional_id": transactional_id},
    )  # fmt: skip


def answer_mismatch(
    unanswered: Collection[TopicPartition], unasked: Collection[TopicPartition], transactional_id: str | None
) -> ProtocolViolation:
    """The error for an answer that omits requested partitions, or names others."""
    said = [f"leaves out {', '.join(map(str, sorted(unanswered)))}"] if unanswered else []
    said += [f"names {', '.join(map(str, sorted(unasked)))}, which was not requested"] if unasked else []
    return ProtocolViolation(
        f"a Produce answer {' and '.join(said)}; whether the batches were written is unknown; "
        f"{outcome(transactional_id)}; check the components between this client and the broker",
        {
            "transactional_id": transactional_id,
            "left_out": tuple(map(str, sorted(unanswered))),
            "unasked": tuple(map(str, sorted(unasked))),
        },
    )
