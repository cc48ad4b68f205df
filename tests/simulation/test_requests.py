"""Faults of single requests: each meets its request, and every row is there once in the end."""

from __future__ import annotations

import pytest

from embedded_kafka.wire.server import api_name
from tests.simulation.cluster import PORTS
from tests.simulation.faults import at_point
from tests.simulation.hooks import Box, Meeting
from tests.simulation.network import SimSocket
from tests.simulation.play import Scene, play
from tests.simulation.requests import REQUEST_FAULTS, on_request

pytestmark = pytest.mark.simulation

OF_VERSION_1 = ("AddPartitionsToTxn", "AddOffsetsToTxn")
"""Requests that a client sends only where the broker does not add partitions by itself."""

EACH = [(fault, api) for fault, (_, apis) in REQUEST_FAULTS.items() for api in apis]


@pytest.mark.parametrize(("fault", "api"), EACH)
def test_whatever_happens_to_a_request_every_row_is_there_once(fault: str, api: str) -> None:
    version = 1 if api in OF_VERSION_1 else 2
    # Only turns are read in a run that nothing else disturbs.
    scope = "batch" if api == "Fetch" else "task"

    outcome = play(4, on_request(fault, api), scope=scope, transaction_version=version)

    assert outcome.fired[f"{fault} {api}"] > 0, f"no request was met: {outcome.fired}"
    assert not outcome.problems, (outcome.problems, outcome.errors)


@pytest.mark.parametrize("scope", ["task", "batch"])
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_an_end_that_arrives_again_while_the_next_transaction_is_open_ends_nothing_of_it(
    scope: str, version: int, nth: int
) -> None:
    faults = on_request("doubled request", "EndTxn", nth)
    # The seed draws how much later: at once, or up to 70 s.
    for seed in range(2):
        outcome = play(seed, faults, scope=scope, transaction_version=version, batches=5)

        assert not outcome.problems, (seed, outcome.problems, outcome.errors)
        assert outcome.fired["doubled request EndTxn"] == 1, seed


def test_a_request_is_recognized_in_bytes_that_come_in_parts() -> None:
    met: list[bytes] = []
    frame = (10).to_bytes(4, "big") + (26).to_bytes(2, "big") + bytes(8)

    def faults(scene: Scene) -> None:
        def does(_end: SimSocket, seen: bytes) -> float:
            met.append(seen)
            return 3.0

        scene.broker.tap.add(Meeting(26, 2, does))
        end = SimSocket(scene.net, scene.world.process("other"))
        end.connect_ex(("127.0.0.1", PORTS[0]))
        scene.world.run(lambda: end.state == "connected", seconds=1)
        later = [scene.net.tap(end, part) for part in (frame + frame[:7], frame[7:12], frame[12:])]  # type: ignore[misc]
        assert later == [0.0, 0.0, 3.0]
        end.close()

    play(0, faults, batches=1)

    assert api_name(26) == "EndTxn"
    assert met == [frame]


def test_a_doubled_request_whose_broker_is_down_is_not_counted() -> None:
    def faults(scene: Scene) -> None:
        def strike(scene: Scene) -> None:
            scene.broker.kill()
            Box(scene.net, b"", "doubled").deliver(("127.0.0.1", PORTS[0]))
            scene.world.schedule(5.0, scene.broker.start)

        at_point("after-decision", strike)(scene)

    outcome = play(0, faults)

    assert not outcome.problems, outcome.problems
    assert "doubled" not in outcome.fired
