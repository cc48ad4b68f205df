"""Faults: when they fire, and that they tell."""

from __future__ import annotations

import asyncio

import pytest

from embedded_kafka.faults.fault import APIS, Fault, StepFault, WireFault
from embedded_kafka.faults.faults import Faults
from embedded_kafka.wire.server import FetchRequest, ProduceRequest

PRODUCE: int = ProduceRequest.API_KEY
FETCH: int = FetchRequest.API_KEY


def test_without_faults_nothing_fires() -> None:
    assert Faults().take(PRODUCE, "me") is None


def test_a_fault_fires_for_its_api_after_what_it_skips_and_as_often_as_it_says() -> None:
    faults = Faults()
    fault = faults.inject(Fault(WireFault.DROP_ANSWER, api="Produce", times=2, skip=1))

    assert faults.take(FETCH, "me") is None
    assert [faults.take(PRODUCE, "me") for _ in range(4)] == [None, fault, fault, None]
    assert fault.fired == 2


def test_a_fault_may_be_meant_for_one_client() -> None:
    faults = Faults()
    fault = faults.inject(Fault(WireFault.DELAY, api="*", client_id="you"))

    assert faults.take(PRODUCE, "me") is None
    assert faults.take(FETCH, "you") is fault


def test_an_api_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown API 'Prodduce'"):
        Fault(WireFault.CUT, api="Prodduce")
    assert {"Produce", "EndTxn", "WriteTxnMarkers"} <= APIS


def test_what_is_stopped_at_a_step_waits_for_its_release() -> None:
    async def scenario() -> None:
        faults = Faults()
        fault = faults.inject(Fault(StepFault.STOP, step="end-prepared"))
        await faults.reached("end-completed")
        waiting = asyncio.ensure_future(faults.reached("end-prepared"))
        await asyncio.sleep(0)
        assert (fault.fired, waiting.done()) == (1, False)

        faults.release(fault)
        await waiting
        await faults.reached("end-prepared")
        assert fault.fired == 1

    asyncio.run(scenario())


def test_clearing_lets_everything_go_on() -> None:
    async def scenario() -> None:
        faults = Faults()
        faults.inject(Fault(StepFault.STOP, step="*", times=5))
        waiting = [asyncio.ensure_future(faults.reached(step)) for step in ("a", "b")]
        await asyncio.sleep(0)
        assert not any(each.done() for each in waiting)

        faults.clear()
        await asyncio.gather(*waiting)

    asyncio.run(scenario())
