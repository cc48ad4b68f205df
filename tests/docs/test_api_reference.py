"""The API reference: every public name has a docstring, and a page that lacks a name or has a broken link is seen.
`make docs` renders.
"""

from __future__ import annotations

from pathlib import Path

import embedded_kafka
from kafka_core import errors
from tools import api_reference


def test_every_public_name_has_a_docstring() -> None:
    assert api_reference.undocumented() == []


def test_a_public_name_without_a_docstring_is_seen(monkeypatch) -> None:
    monkeypatch.setattr(embedded_kafka.FaultHandle, "__doc__", None)
    assert api_reference.undocumented() == ["embedded_kafka.FaultHandle"]


def test_the_reference_has_the_names_that_the_page_of_public_names_has() -> None:
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    rows = {line.split("|")[1].strip(" `") for line in page.splitlines() if line.startswith("| `")}
    found = {name for module in api_reference.MODULES for name in api_reference.public_names(module)}

    assert found - rows == {"DefaultSource"}, "the formats' class, which Spark finds by its name"
    assert rows <= found
    assert errors.OptionsError.__name__ in found


def test_a_link_that_leads_nowhere_and_a_name_without_a_place_are_seen(tmp_path: Path) -> None:
    for module in api_reference.MODULES:
        page = tmp_path / f"{module.replace('.', '/')}.html"
        page.parent.mkdir(exist_ok=True)
        places = "".join(f'<i id="{name}"></i>' for name in api_reference.public_names(module))
        page.write_text(f'<a href="https://example.com/x"></a>{places}')
    errors_page = "kafka_core/errors.html"
    wrong = (
        f'<a href="{errors_page}#UserError"></a><a href="{errors_page}#No"></a><a href="no.html"></a><a href="#No"></a>'
    )
    (tmp_path / "embedded_kafka.html").write_text(f'<i id="Security"></i>{wrong}')

    assert set(api_reference.broken_links(tmp_path)) == {
        f"embedded_kafka.html: {errors_page}#No", "embedded_kafka.html: no.html", "embedded_kafka.html: #No",
    }  # fmt: skip
    assert api_reference.unplaced(tmp_path) == [
        "embedded_kafka.EmbeddedKafka",
        "embedded_kafka.FaultHandle",
    ]
