"""A transaction that outlived its timeout. Named to run last: the coordinator's sweep comes every ten seconds."""

from __future__ import annotations

import pytest

from kafka_core.protocol.error_codes import Code
from tests.pyspark_kafka_eos.client.client_tools import Broker, end, next_epoch, state, wait_until

pytestmark = pytest.mark.kafka


def test_a_transaction_that_timed_out_is_aborted_and_its_owner_fenced(broker: Broker) -> None:
    """Rule: seed 003 (transaction expiry: abort under a bumped epoch) and seed 004 (transaction.timeout.ms).
    Row: timed out, 90 on version 1 and 48 on version 2."""
    doomed = broker.doomed
    assert doomed is not None
    wait_until(lambda: state(broker, doomed.transactional_id)[0] == "CompleteAbort", "the coordinator's sweep")
    assert state(broker, doomed.transactional_id) == ("CompleteAbort", next_epoch(doomed))
    answer = end(broker, doomed)
    expected = Code.INVALID_TXN_STATE if broker.version >= 2 else Code.PRODUCER_FENCED
    assert (answer.definite, answer.code) == (False, expected)
    assert broker.read(doomed.partitions[0].topic) == []
