"""The breaches, by the sections of docs/rules.md and of docs/design/findings.md."""

from __future__ import annotations

from tests.rules.breaches import (
    client_epochs,
    client_flow,
    client_sequences,
    coordinator,
    finding_absences,
    finding_ledger,
    finding_people,
    finding_places,
    finding_proof,
    finding_rows,
    server,
)
from tests.rules.table import Breach

BREACHES: tuple[Breach, ...] = (
    *client_sequences.BREACHES,
    *client_epochs.BREACHES,
    *client_flow.BREACHES,
    *server.BREACHES,
    *coordinator.BREACHES,
    *finding_places.BREACHES,
    *finding_absences.BREACHES,
    *finding_ledger.BREACHES,
    *finding_rows.BREACHES,
    *finding_proof.BREACHES,
    *finding_people.BREACHES,
)
