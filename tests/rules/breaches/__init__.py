"""The breaches, by the sections of docs/rules.md."""

from __future__ import annotations

from tests.rules.breaches import client_epochs, client_flow, client_sequences, coordinator, server
from tests.rules.table import Breach

BREACHES: tuple[Breach, ...] = (
    *client_sequences.BREACHES,
    *client_epochs.BREACHES,
    *client_flow.BREACHES,
    *server.BREACHES,
    *coordinator.BREACHES,
)
