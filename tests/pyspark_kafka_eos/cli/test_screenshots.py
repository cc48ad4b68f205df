"""The pictures in the docs: made of a real run, and whoever looks at one fetches nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.screenshots import main

pytestmark = [pytest.mark.kafka, pytest.mark.embedded]

SHOWN = {
    "doctor": "id-collisions",
    "ledger": "orders",
    "verify": "matches",
    "transactions": "Ongoing",
    "explain": "Decided",
}


def test_each_command_has_a_picture_of_what_it_printed(tmp_path: Path) -> None:
    main(tmp_path)

    pictures = {path.stem: path.read_text() for path in tmp_path.glob("*.svg")}
    assert pictures.keys() == SHOWN.keys()
    for name, words in SHOWN.items():
        assert words in pictures[name]
        assert "@font-face" not in pictures[name]
