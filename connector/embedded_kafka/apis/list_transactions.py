"""ListTransactions: the transactional ids that this broker coordinates (KIP-664).

Version 1 adds the filter by duration (KIP-994). Version 2 filters by a regular expression of the client
(KIP-1152) and is not offered: on a hostile expression Python's matcher may never return, which would
block all other clients.
"""

from __future__ import annotations

import asyncio

from embedded_kafka.context import Context
from embedded_kafka.parts import Parts
from embedded_kafka.transactions.machine.events import TransactionState
from embedded_kafka.wire.server import ListTransactionsRequest, ListTransactionsResponse, Message
from kafka_core.protocol.error_codes import Code

API_KEY: int = ListTransactionsRequest.API_KEY
VERSIONS = (0, 1)
REPEATABLE = True
GROWS = "transaction_states"

_AT_ONCE = 1_000
"""Ids examined without a pause, which takes a millisecond or two; there may be 200,000."""
_STATES = {state.kafka_name: state for state in TransactionState}


async def handle(parts: Parts, request: Message, _context: Context) -> Message:
    """List the ids that pass all filters, as of now."""
    states = [_STATES[name] for name in request.state_filters if name in _STATES] if request.state_filters else None
    producer_ids = frozenset(request.producer_id_filters)
    duration_ms = request.duration_filter if request.API_VERSION >= 1 else -1
    shown = []
    everything = parts.transactions.everything()
    for at in range(0, len(everything), _AT_ONCE):
        found = parts.transactions.listing(states, producer_ids, duration_ms, everything[at : at + _AT_ONCE])
        shown += [
            ListTransactionsResponse.TransactionState(
                transactional_id=transactional_id,
                producer_id=entry.producer_id,
                transaction_state=entry.state.kafka_name,
            )
            for transactional_id, entry in found
            if parts.authorizer.allows("DESCRIBE", "TRANSACTIONAL_ID", transactional_id)
        ]
        # Lets the loop serve other requests in between.
        await asyncio.sleep(0)
    return ListTransactionsResponse(
        version=request.API_VERSION,
        throttle_time_ms=0,
        error_code=int(Code.NONE),
        unknown_state_filters=[name for name in request.state_filters if name not in _STATES],
        transaction_states=shown,
    )
