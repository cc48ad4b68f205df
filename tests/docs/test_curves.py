"""The pictures of docs/design/performance.md are drawn from the newest points."""

from __future__ import annotations

import pytest

from benchmarks.curves import DIRECTORY, PICTURES, Picture
from tests.docs.figures import PERFORMANCE


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_picture_is_of_the_newest_points_and_the_page_shows_it(picture: Picture) -> None:
    drawn = picture.path.read_text(encoding="utf-8")
    labels = [picture.label, *(label for panel in picture.panels for label in panel.lines.values())]

    assert picture.mark() in drawn, "run: make pages"
    assert [label for label in labels if f">{label}<" not in drawn.replace("&#x27;", "'")] == []
    link = f"({DIRECTORY.name}/{picture.path.name})"
    assert PERFORMANCE.read_text(encoding="utf-8").count(link) == 1


def test_there_is_no_picture_that_nothing_draws() -> None:
    assert sorted(DIRECTORY.iterdir()) == sorted(each.path for each in PICTURES)
