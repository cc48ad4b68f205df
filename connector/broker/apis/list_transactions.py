"""ListTransactions: the transactional ids that this broker coordinates (KIP-664).

Version 1 adds the filter by duration (KIP-994). Version 2, which filters by a regular expression of the client's (KIP-1152), is
not offered: Python's matcher can take for ever over a hostile one, and everybody else would wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from connector.machines.transaction_events import State
from connector.protocol.error_codes import Code
from connector.protocol.server import ListTransactionsRequest, ListTransactionsResponse, Message

if TYPE_CHECKING:
    from connector.broker.context import Context
    from connector.broker.node import Node

API_KEY: int = ListTransactionsRequest.API_KEY
VERSIONS = (0, 1)

_STATES = {state.kafka_name: state for state in State}


async def handle(node: Node, request: Message, _context: Context) -> Message:
    """List what all the filters let through."""
    found = node.transactions.listing(
        [_STATES[name] for name in request.state_filters if name in _STATES]
        if request.state_filters
        else None,
        frozenset(request.producer_id_filters),
        request.duration_filter if request.API_VERSION >= 1 else -1,
    )
    return ListTransactionsResponse(
        version=request.API_VERSION,
        throttle_time_ms=0,
        error_code=int(Code.NONE),
        unknown_state_filters=[name for name in request.state_filters if name not in _STATES],
        transaction_states=[
            ListTransactionsResponse.TransactionState(
                transactional_id=transactional_id,
                producer_id=entry.producer_id,
                transaction_state=entry.state.kafka_name,
            )
            for transactional_id, entry in found
            if node.authorizer.allows("DESCRIBE", "TRANSACTIONAL_ID", transactional_id)
        ],
    )
