"""One fault that a test asks for: where it is set, what happens there, and what it is restricted to.

Owns: every name that a fault can be asked for by, once, with its default; which of them do not go together.
Does not know: which faults are set, when one fires (`faults`).
"""

from __future__ import annotations

import asyncio
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from typing import Any

from embedded_kafka.faults import request_facts
from embedded_kafka.faults.steps import STEPS, is_step
from embedded_kafka.settings.choices import unknown
from embedded_kafka.wire.server import REQUESTS, Message, api_name
from kafka_core.protocol.error_codes import Code


class WireFault(Enum):
    """What happens to a request."""

    DELAY = "delay"
    """The broker processes it after `delay_ms`."""
    DROP_REQUEST = "drop-request"
    """The broker does not process it and closes the connection."""
    DROP_ANSWER = "drop-answer"
    """The broker processes it, and closes the connection instead of answering."""
    ERROR = "error"
    """The broker does not process it; the answer has `code` in every field that can hold one."""
    CUT = "cut"
    """The broker processes it, cuts the answer after `after_bytes`, and closes the connection."""


class AnswerFault(Enum):
    """The error in an answer. The broker still processes the request normally."""

    EMPTY = "empty"
    """Fetch: the answer has no records for a partition that has some."""
    FEWER = "fewer"
    """Fetch: only the first `batches` batches of those that were read."""
    TORN = "torn"
    """Fetch: the first `batches` batches and a half."""
    SLOW_STORE = "slow-store"
    """Fetch: no records for a fetch offset below `below` until `delay_ms` after the first
    request for that offset."""
    ERROR = "error"
    """The answer has `code` for a partition, although the broker processed it like the others."""
    LEAVE_OUT = "leave-out"
    """A partition is not in the answer."""
    LEAVE_OUT_TOPIC = "leave-out-topic"
    """Metadata: a requested topic is unknown. If all topics were requested, the answer leaves it out."""
    OTHER_PARTITION = "other-partition"
    """The answer names a partition that was not requested, in place of one that was."""


class StepFault(Enum):
    """What happens when a coordinator reaches a step."""

    STOP = "stop"
    """The coordinator waits there until the fault is released."""
    DELAY = "delay"
    """The coordinator waits there for `delay_ms`."""
    KILL = "kill"
    """SIGKILL ends the broker's process at once; only for a broker in a process of its own."""


class MarkerFault(Enum):
    """What happens to a transaction's marker for one partition. Other partitions' markers are not delayed."""

    FORGET = "forget"
    """The marker is never written, but counts as written: the transaction is complete and
    hangs in this partition."""
    LATE = "late"
    """The marker is written after `delay_ms`, or with 0 on release; until then the transaction is prepared."""


class LeaderFault(Enum):
    """Which leader answers for a partition. The broker writes as the present leader in any case."""

    STALE = "stale-leader"
    """One that was cut off from the controller, and has been replaced without noticing: it answers as the log
    was at an earlier end, under its own epoch. What was written since it does not have."""
    LAGGING = "lagging-high-watermark"
    """A new one that has every record and does not know yet how far its followers are: readers
    get nothing from its high watermark on, and "latest" is not available (KIP-207). Until it has appended something."""


Action = WireFault | AnswerFault | StepFault | MarkerFault | LeaderFault

PLACES: dict[str, type[Action]] = {
    "wire": WireFault, "answer": AnswerFault, "step": StepFault, "marker": MarkerFault, "leader": LeaderFault,
}  # fmt: skip
"""Where a fault is set -> what may happen there."""

_WHERE = {
    "wire": "requests", "answer": "answers", "step": "a step", "marker": "a marker", "leader": "a leader's place",
}  # fmt: skip

APIS = frozenset(api_name(key) for key in REQUESTS)
"""The names under which faults can be set at the wire."""

LEADER_APIS = frozenset({"DescribeProducers", "Fetch", "ListOffsets", "Metadata", "OffsetForLeaderEpoch"})
"""The APIs that `leader_views` answers."""

OF_FETCH = frozenset({AnswerFault.EMPTY, AnswerFault.FEWER, AnswerFault.TORN, AnswerFault.SLOW_STORE})
"""What can be altered in the answers of Fetch alone."""

_BY_PARTITION = frozenset(
    {"Fetch", "ListOffsets", "Metadata", "OffsetCommit", "OffsetForLeaderEpoch", "Produce", "TxnOffsetCommit"}
)


_LOWEST = {
    "times": 1, "skip": 0, "delay_ms": 0, "after_bytes": 0, "batches": 0, "partition": 0, "below": 0, "end": 0,
    "broker": 0, "last_stable_offset": -1, "other_partition": -1,
}  # fmt: skip
"""A fault's numbers and the least that each may be. The last two are lies in an answer, which may be as wrong as an
answer can be.
"""

_MAY_BE_NONE = frozenset({"broker", "partition", "below", "end", "last_stable_offset", "other_partition"})


@dataclass(eq=False)
class Fault:
    """One fault. It first skips `skip` matches, then fires at most `times` times.

    ValueError where it could never fire.
    """

    action: Action
    _: KW_ONLY
    api: str | None = None
    """Kafka's name of it, "*" for all: whose requests or answers it is set for; only this one of those that ask a
    leader.
    """
    step: str | None = None
    """A coordinator's step, "*" for all."""
    topic: str | None = None
    """The markers' or the leader's; else only requests that name it, or its part of an answer."""
    partition: int | None = None
    client_id: str | None = None
    transactional_id: str | None = None
    broker: int | None = None
    """Only what this one of several is asked."""
    commit: bool | None = None
    """Only the markers of commits, or only those of aborts."""
    times: int = 1
    skip: int = 0
    delay_ms: int = 0
    code: Code = Code.UNKNOWN_SERVER_ERROR
    after_bytes: int = 0
    batches: int = 1
    below: int | None = None
    """SLOW_STORE: only fetch offsets before this one."""
    last_stable_offset: int | None = None
    """What the altered answers say instead of the true one."""
    other_partition: int | None = None
    """OTHER_PARTITION: the one that is named; None: the next free number."""
    end: int | None = None
    """A leader's high watermark, and for STALE the end of its log; None: where the log ends now."""
    leader_epoch: int = field(default=-1, init=False)
    """A STALE leader's own."""
    number: int = field(default=0, init=False)
    fired: int = field(default=0, init=False)
    met: int = field(default=0, init=False)
    released: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    first_asked: dict[tuple[str, int, int], float] = field(default_factory=dict, init=False)
    """SLOW_STORE: (topic, partition, offset) -> when it was first asked for, in the loop's seconds."""

    def __post_init__(self) -> None:
        self._check_values()
        api, step = self.api, self.step
        everything = {WireFault: "*", LeaderFault: None}.get(type(self.action), "")
        if isinstance(self.action, WireFault | AnswerFault | LeaderFault) and api not in APIS and api != everything:
            raise ValueError(unknown("API", api, APIS))
        if isinstance(self.action, AnswerFault) and not _can_alter(api, self.action):
            can = ", ".join(sorted(api for api in APIS if _can_alter(api, self.action)))
            raise ValueError(f"answers of {api} do not support the alteration {self.action.value!r}; those of {can} do")
        if isinstance(self.action, LeaderFault) and (self.topic is None or self.partition is None):
            raise ValueError(
                f"a leader is one partition's, so {'topic' if self.topic is None else 'partition'} must not be None"
            )
        if isinstance(self.action, LeaderFault) and api is not None and api not in LEADER_APIS:
            raise ValueError(f"{api} asks no leader; these do: {', '.join(sorted(LEADER_APIS))}")
        if isinstance(self.action, StepFault) and step != "*" and not is_step(step or ""):
            raise ValueError(unknown("step", step, STEPS))

    def _check_values(self) -> None:
        """ValueError where a field has a value with which no request, record or marker could ever agree."""
        for name, lowest in _LOWEST.items():
            value = getattr(self, name)
            if value is None and name in _MAY_BE_NONE:
                continue
            if type(value) is not int or value < lowest:
                raise ValueError(f"{name} must be a whole number, {lowest} or more, not {value!r}")
        for name in ("topic", "client_id", "transactional_id"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise ValueError(f"{name} must be a string or None, not {value!r}")
        if self.commit not in (None, True, False):
            raise ValueError(f"commit must be True, False or None, not {self.commit!r}")

    def meets(self, **facts: object) -> bool:
        """Whether it may still fire, and these values of its fields are among those that it is restricted to."""
        return self.fired < self.times and all(
            getattr(self, name) in (None, "*", value) for name, value in facts.items()
        )

    def fires(self, **facts: object) -> bool:
        """Whether it fires now; counts the match."""
        if not self.meets(**facts):
            return False
        self.met += 1
        if self.met <= self.skip:
            return False
        self.fired += 1
        return True

    def concerns(self, request: Message) -> bool:
        """Whether the request names everything that the fault is restricted to."""
        if self.transactional_id not in (None, *request_facts.transactional_ids(request)):
            return False
        return (self.topic is None and self.partition is None) or any(
            self.topic in (None, topic) and self.partition in (None, partition)
            for topic, partition in request_facts.places(request)
        )


def asked_for(place: str, action: str, code: str = Code.UNKNOWN_SERVER_ERROR.name, **asked: Any) -> Fault:
    """The fault that is asked for in plain values: a key of PLACES, an action's value, Kafka's name of an error, fields
    of `Fault`. ValueError names what there is none of, and what is near.
    """
    actions = {each.value: each for each in PLACES[place]}
    if action not in actions:
        raise ValueError(unknown(f"action of a fault in {_WHERE[place]}", action, actions))
    if code not in Code.__members__:
        raise ValueError(unknown("error code", code, Code.__members__))
    return Fault(actions[action], code=Code[code], **asked)


def _can_alter(api: str | None, action: AnswerFault) -> bool:
    if action in OF_FETCH:
        return api == "Fetch"
    return api == "Metadata" if action is AnswerFault.LEAVE_OUT_TOPIC else api in _BY_PARTITION
