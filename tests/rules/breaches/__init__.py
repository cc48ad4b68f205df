"""The breaches, by the sections of docs/rules.md and of docs/design/findings.md."""

from __future__ import annotations

from tests.rules.breaches import (
    client_epochs,
    client_flow,
    client_sequences,
    coordinator,
    finding_absences,
    finding_brokers,
    finding_ledger,
    finding_people,
    finding_places,
    finding_proof,
    finding_rows,
    server,
)
from tests.rules.table import Breach

_SECTIONS = (
    client_sequences,
    client_epochs,
    client_flow,
    server,
    coordinator,
    finding_places,
    finding_absences,
    finding_ledger,
    finding_rows,
    finding_proof,
    finding_people,
    finding_brokers,
)

BREACHES: tuple[Breach, ...] = tuple(
    Breach(rule, planted) for section in _SECTIONS for rule, several in section.BREACHES.items() for planted in several
)
