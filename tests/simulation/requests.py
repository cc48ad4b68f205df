"""What happens to one request: the k-th of an API from now on.

Owns: the table `REQUEST_FAULTS`, the codes that Kafka gives for each API, and how a fault meets its request.
Does not know: what the product does about it.
Invariants: a fault counts as fired where its request came by, not where it was set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from embedded_kafka.faults.fault import AnswerFault, Fault, WireFault
from embedded_kafka.wire.server import REQUESTS, api_name
from kafka_core.protocol.error_codes import Code
from tests.simulation.hooks import BROKER, Box, Meeting
from tests.simulation.network import SimSocket
from tests.simulation.play import Faults, Scene

_COORDINATOR_MOVES = (
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_COORDINATOR,
)
_LEADER_MOVES = (Code.NOT_LEADER_OR_FOLLOWER, Code.KAFKA_STORAGE_ERROR)

RETRIABLE: dict[str, tuple[Code, ...]] = {
    "InitProducerId": (*_COORDINATOR_MOVES, Code.CONCURRENT_TRANSACTIONS),
    "AddPartitionsToTxn": (*_COORDINATOR_MOVES, Code.CONCURRENT_TRANSACTIONS),
    "AddOffsetsToTxn": (*_COORDINATOR_MOVES, Code.CONCURRENT_TRANSACTIONS),
    "TxnOffsetCommit": _COORDINATOR_MOVES,
    "EndTxn": (*_COORDINATOR_MOVES, Code.CONCURRENT_TRANSACTIONS),
    "DescribeTransactions": _COORDINATOR_MOVES,
    "FindCoordinator": (Code.COORDINATOR_NOT_AVAILABLE,),
    "Produce": (*_LEADER_MOVES, Code.NOT_ENOUGH_REPLICAS),
    "Fetch": (*_LEADER_MOVES, Code.OFFSET_NOT_AVAILABLE),
    "ListOffsets": (*_LEADER_MOVES, Code.LEADER_NOT_AVAILABLE, Code.OFFSET_NOT_AVAILABLE),
    "DescribeProducers": _LEADER_MOVES,
}
"""API -> codes by which Kafka refuses the request for now. Kafka has changed nothing where it gives one of them."""

DONE_AND_REFUSED: dict[str, tuple[Code, ...]] = {
    "Produce": (Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Code.REQUEST_TIMED_OUT),
    "TxnOffsetCommit": (Code.COORDINATOR_NOT_AVAILABLE,),
}
"""API -> codes that Kafka gives although the records may stay. TxnOffsetCommit: where its replicas answered too
late.
"""

APIS = tuple(RETRIABLE)

ALTERED = (AnswerFault.EMPTY, AnswerFault.FEWER, AnswerFault.TORN, AnswerFault.SLOW_STORE)
"""Answers of Fetch that lack records which are there: Kafka gives each of them."""

_KEYS = {api_name(key): key for key in REQUESTS}


@dataclass(frozen=True)
class Extent:
    """From what a fault of a request draws how long it takes, in seconds, and how many requests it meets."""

    late_s: Sequence[float] = (0.3, 5.0, 35.0, 70.0)
    """35 s is longer than a client waits for an answer, 70 s longer than any transaction of the simulated job may be
    open.
    """
    outage_s: Sequence[float] = (20.0, 75.0, 130.0, 200.0)
    """Up to longer than the client asks for an outcome, which is 60 s for a decision and 120 s for an end."""
    again_s: Sequence[float] = (0.0, 0.01, 0.3, 5.0, 35.0, 70.0)
    """When a doubled request comes for the second time."""
    refusals: Sequence[int] = (1, 1, 3, 20)
    answers: Sequence[int] = (1, 3, 20)
    store_ms: Sequence[int] = (300, 2_000, 10_000)


USUAL = Extent()

RequestFault = Callable[[Scene, str, int, Extent], None]
"""(scene, API, which request from now on, counted from 1, how long)."""


def _lost_answer(scene: Scene, api: str, nth: int, _extent: Extent) -> None:
    """The broker does the work and closes the connection."""
    _named(scene, "lost answer", scene.broker.faults.inject(Fault(WireFault.DROP_ANSWER, api=api, skip=nth - 1)))


def _lost_request(scene: Scene, api: str, nth: int, _extent: Extent) -> None:
    """The broker does nothing and closes the connection."""
    _named(scene, "lost request", scene.broker.faults.inject(Fault(WireFault.DROP_REQUEST, api=api, skip=nth - 1)))


def _slow(scene: Scene, api: str, nth: int, extent: Extent) -> None:
    """The broker does the work later, and what the same connection sent meanwhile waits."""
    seconds = scene.world.random.choice(extent.late_s)
    fault = scene.broker.faults.inject(Fault(WireFault.DELAY, api=api, skip=nth - 1, delay_ms=round(1000 * seconds)))
    _named(scene, "slow request", fault)


def _refused(scene: Scene, api: str, nth: int, extent: Extent) -> None:
    """The broker refuses it for now, once or a few times."""
    chance = scene.world.random
    code, times = chance.choice(RETRIABLE[api]), chance.choice(extent.refusals)
    fault = scene.broker.faults.inject(Fault(WireFault.ERROR, api=api, skip=nth - 1, times=times, code=code))
    _named(scene, "refused request", fault)


def _done_and_refused(scene: Scene, api: str, nth: int, _extent: Extent) -> None:
    """The broker does the work and answers with an error."""
    code = scene.world.random.choice(DONE_AND_REFUSED[api])
    fault = scene.broker.faults.inject(Fault(AnswerFault.ERROR, api=api, code=code, skip=nth - 1))
    _named(scene, "done and refused", fault)


def _fewer_records(scene: Scene, api: str, nth: int, extent: Extent) -> None:
    """The answer lacks records that are there: all, all but one batch, or half of a batch."""
    chance = scene.world.random
    action = chance.choice(ALTERED)
    delay_ms = chance.choice(extent.store_ms) if action is AnswerFault.SLOW_STORE else 0
    times = chance.choice(extent.answers)
    fault = scene.broker.faults.inject(Fault(action, api=api, delay_ms=delay_ms, skip=nth - 1, times=times))
    _named(scene, "fewer records", fault)


def _late_answer(scene: Scene, api: str, nth: int, extent: Extent) -> None:
    """The broker does the work at once, the answer is under way for long."""
    seconds = scene.world.random.choice(extent.late_s)

    def does(end: SimSocket, _frame: bytes) -> float:
        assert end.peer is not None
        end.peer.hold(seconds)
        scene.world.fired[f"late answer {api}"] += 1
        return 0.0

    _meet(scene, api, nth, does)


def _late(scene: Scene, api: str, nth: int, extent: Extent) -> None:
    """The request is under way for long. Its client gives up before that, and the broker does the work then."""
    seconds = scene.world.random.choice(extent.late_s)

    def does(_end: SimSocket, _frame: bytes) -> float:
        scene.world.fired[f"late request {api}"] += 1
        return seconds

    _meet(scene, api, nth, does)


def _late_of_the_dead(scene: Scene, api: str, nth: int, extent: Extent) -> None:
    """The request arrives after its sender was killed and, mostly, after another one has taken over."""
    seconds = scene.world.random.choice(extent.late_s)

    def does(end: SimSocket, _frame: bytes) -> float:
        scene.world.fired[f"late request of the dead {api}"] += 1
        scene.world.schedule(0.0, lambda: scene.world.kill(end.process, struck=False))
        return seconds

    _meet(scene, api, nth, does)


def _unanswered(scene: Scene, api: str, nth: int, extent: Extent) -> None:
    """The request arrives, and then the link is down in both directions for longer than a client asks."""
    seconds = scene.world.random.choice(extent.outage_s)

    def does(end: SimSocket, _frame: bytes) -> float:
        scene.world.fired[f"unanswered request {api}"] += 1
        name = end.process.name

        def cut() -> None:
            scene.net.cut(name, BROKER, seconds)
            scene.net.cut(BROKER, name, seconds)

        # Not before this request has left: `held_until` is asked where it is sent.
        scene.world.schedule(0.0, cut)
        return 0.0

    _meet(scene, api, nth, does)


def _doubled(scene: Scene, api: str, nth: int, extent: Extent) -> None:
    """The network delivers the request once more, at once or much later."""
    seconds = scene.world.random.choice(extent.again_s)

    def does(end: SimSocket, frame: bytes) -> float:
        address = end.getpeername()

        def again() -> None:
            Box(scene.net, frame, f"doubled request {api}").deliver(address)

        scene.world.schedule(seconds, again)
        return 0.0

    _meet(scene, api, nth, does)


def _named(scene: Scene, name: str, fault: Fault) -> None:
    scene.broker.faults.names[fault.number] = name


def _meet(scene: Scene, api: str, nth: int, does: Callable[[SimSocket, bytes], float]) -> None:
    scene.broker.tap.add(Meeting(_KEYS[api], nth, does))


REQUEST_FAULTS: dict[str, tuple[RequestFault, tuple[str, ...]]] = {
    "lost answer": (_lost_answer, APIS),
    "lost request": (_lost_request, APIS),
    "slow request": (_slow, APIS),
    "refused request": (_refused, APIS),
    "done and refused": (_done_and_refused, tuple(DONE_AND_REFUSED)),
    "fewer records": (_fewer_records, ("Fetch",)),
    "late answer": (_late_answer, APIS),
    "late request": (_late, APIS),
    "late request of the dead": (_late_of_the_dead, APIS),
    "unanswered request": (_unanswered, ("EndTxn", "TxnOffsetCommit", "Produce", "InitProducerId", "DescribeTransactions")),
    "doubled request": (_doubled, APIS),
}  # fmt: skip
"""Name -> the fault, and the APIs whose requests it can meet."""


def on_request(fault: str, api: str, nth: int = 1) -> Faults:
    """That fault for the `nth` request of the API, counted from when the job begins."""
    does, apis = REQUEST_FAULTS[fault]
    if api not in apis:
        raise ValueError(f"{fault} cannot meet {api}; possible: {', '.join(apis)}")
    return lambda scene: does(scene, api, nth, USUAL)


def drawn(fault: str) -> Callable[[Scene], None]:
    """That fault for one of the next requests of an API, both drawn."""
    does, apis = REQUEST_FAULTS[fault]

    def strike(scene: Scene) -> None:
        chance = scene.world.random
        does(scene, chance.choice(apis), chance.choice((1, 1, 2, 3, 5, 8)), USUAL)

    return strike
