"""What the progress display shows of a query, in a table, in a line and as a picture."""

from __future__ import annotations

import io
import math

import pytest
from rich.console import Console

from pyspark_kafka_eos.spark.metrics.display import DONE, ProgressDisplay, QueryView, plain_line, render
from pyspark_kafka_eos.spark.metrics.progress import read_progress
from tests.pyspark_kafka_eos.spark.metrics.examples import batch, ended_query, spark_json
from tests.pyspark_kafka_eos.spark.metrics.notebook import outputs_of
from tests.support.logs import said_by


def drawn(*views: QueryView) -> list[str]:
    console = Console(file=io.StringIO(), width=120, color_system=None)
    console.print(render(views))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text.splitlines()


def view(**changed: object) -> QueryView:
    return QueryView("clean-orders").seen(batch(**changed))


def test_a_row_has_batch_rate_lag_commit_time_and_time_left() -> None:
    header, row = drawn(view())

    assert header.split() == ["query", "batch", "records/s", "read", "behind", "commit", "left", "state"]
    cells = [cell for cell in row.split() if set(cell) - set("━╸╺ ")]
    assert cells == ["clean-orders", "7", "300", "40", "22", "ms", "890", "s", "running"]


def test_the_bar_goes_from_where_the_query_began_to_where_the_source_ends() -> None:
    # 30 of 130 were read before this batch; it began at 10 + 20 and is at 60 + 60 of 60 + 100.
    assert view().way == (90, 130)


def test_the_beginning_stays_while_the_query_goes_on() -> None:
    first = view()
    later = batch(start=batch().end, end=batch().latest)

    assert first.seen(later).way == (130, 130)


@pytest.mark.parametrize("share", [0, 25, 50, 100])
def test_the_bar_is_as_long_as_what_was_read(share: int) -> None:
    shown = view()
    assert shown.progress is not None and shown.begin is not None
    (first, second) = sorted(shown.begin)
    end = {first: 10, second: 20 + share}
    latest = {first: 10, second: 120}

    row = drawn(QueryView("q", begin=shown.begin, progress=batch(end=end, latest=latest)))[1]

    # Without colour rich draws the part that is done and leaves the rest empty.
    assert row.count("━") + row.count("╸") == pytest.approx(20 * share / 100, abs=1)


def test_a_source_that_is_empty_is_read_to_its_end() -> None:
    nothing = batch(end=batch().start, latest=batch().start)

    assert QueryView("q").seen(nothing).way == (0, 0)
    assert "100 % read, 0 behind" in plain_line(QueryView("q").seen(nothing))


def test_what_is_not_known_is_a_dash() -> None:
    bare = read_progress({"id": "q", "runId": "r", "batchId": 3})

    assert drawn(QueryView("q").seen(bare))[1].split() == ["q", "3", "-", "-", "-", "-", "-", "running"]
    assert drawn(QueryView("q"))[1].split() == ["q", "-", "-", "-", "-", "-", "-", "running"]


def test_transactions_without_a_timeout_say_so() -> None:
    assert "no timeout" in drawn(view(left_s=math.inf))[1]


def test_every_query_has_a_row_of_its_own_and_how_it_ended() -> None:
    rows = drawn(view(), QueryView("other", state="DecisionBroken"), QueryView("third", state=DONE))

    assert [row.split()[-1] for row in rows[1:]] == ["running", "DecisionBroken", "done"]


def test_a_line_for_a_file_says_the_same() -> None:
    assert plain_line(view()) == (
        "clean-orders: running, batch 7, 300 records/s, 69 % read, 40 behind, commit 22 ms, 890 s left"
    )


def test_a_name_that_looks_like_markup_is_shown_as_it_is() -> None:
    assert drawn(QueryView("a[bold]b[/x]"))[1].startswith("a[bold]b[/x]")


def test_a_batch_of_another_source_needs_no_bar() -> None:
    rate = {"description": "RateStreamV2", "startOffset": 1, "endOffset": 2, "latestOffset": 2}

    assert QueryView("q").seen(read_progress(spark_json(sources=[rate]))).way is None


# ---- shown, without Spark: the query is one that has ended


def shown_in(console: Console) -> str:
    with ProgressDisplay(ended_query(), console=console):
        pass
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def test_in_a_terminal_the_table_is_drawn_over_and_its_last_state_stays() -> None:
    text = shown_in(Console(file=io.StringIO(), width=120, force_terminal=True, color_system=None))

    # Cursor up, line erased: the first drawing, which knew nothing yet, was drawn over.
    assert "\x1b[1A\x1b[2K" in text
    assert "running" in text.split("\x1b[1A\x1b[2K")[0]
    assert "done" in text.split("\x1b[1A\x1b[2K")[-1]


def test_in_a_file_there_is_one_line_for_what_is_new_and_no_escape_sequence() -> None:
    text = shown_in(Console(file=io.StringIO(), width=40))

    assert text == "clean-orders: done, batch 7, 300 records/s, 69 % read, 40 behind, commit -, - left\n"


@pytest.mark.processes
def test_in_a_notebook_the_cells_output_is_a_table_that_was_renewed_in_place() -> None:
    shown = outputs_of(
        "from tests.pyspark_kafka_eos.spark.metrics.examples import ended_query",
        "from pyspark_kafka_eos.spark.metrics.display import display_progress\ndisplay_progress(ended_query())",
    )

    # One output only: what changed it later had its id, and rich's own Live would have asked for ipywidgets.
    assert [output["output_type"] for output in shown] == ["display_data"]
    html = str(shown[0]["data"]["text/html"])
    assert "clean-orders" in html
    assert "done" in html


def test_a_display_that_fails_leaves_the_query_alone(caplog: pytest.LogCaptureFixture) -> None:
    class Gone:
        """A query whose Spark is gone: whatever is asked of it fails."""

        id, name = "6d4f", "q"

    with ProgressDisplay(Gone(), console=Console(file=io.StringIO())) as display:
        pass

    assert [view.progress for view in display.views] == [None]
    assert said_by(caplog, "pyspark_kafka_eos.spark.metrics.display") == [
        "the progress display ended after an error; the query continues"
    ]
