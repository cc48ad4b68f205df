"""A live view of running queries in a terminal or a notebook: the extra `cli` (rich).

Owns: the displayed columns and their form; polling the queries while they are shown.
Does not know: the origin of the numbers; it only reads Spark's progress and the reports of this process's
commits.
Invariants:
- The display never disturbs a query: an error here is logged and ends the display, nothing else.
"""

from __future__ import annotations

import json
import logging
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pyspark_kafka_eos.commit import reports
from pyspark_kafka_eos.spark.metrics.listener import error_name
from pyspark_kafka_eos.spark.metrics.progress import BatchProgress, Positions, read_progress

if TYPE_CHECKING:
    from typing_extensions import Self

log = logging.getLogger(__name__)

EVERY_S = 0.5
"""How often the queries are polled. A trigger takes at least about 0.3 s. At half most polls find nothing
new; at double the view seems to hang."""

_BAR_WIDTH = 20

RUNNING, DONE = "running", "done"


class Query(Protocol):
    """The part of a StreamingQuery that is used here, classic or Connect."""

    @property
    def id(self) -> Any: ...
    @property
    def name(self) -> Any: ...
    @property
    def isActive(self) -> bool: ...  # noqa: N802
    @property
    def lastProgress(self) -> Any: ...  # noqa: N802
    @property
    def recentProgress(self) -> Any: ...  # noqa: N802
    def exception(self) -> Any:
        """The error that ended the query."""

    def awaitTermination(self, timeout: Any = None) -> Any:  # noqa: N802
        """Wait for the query's end."""


@dataclass(frozen=True)
class QueryView:
    """The displayed values of one query. `begin`: its sources' positions when it was first seen. `state`:
    RUNNING, DONE or the class of the error that ended it."""

    label: str
    state: str = RUNNING
    progress: BatchProgress | None = None
    begin: Positions | None = None

    @property
    def way(self) -> tuple[int, int] | None:
        """(offsets done, offsets in all) from `begin` to the sources' end; None where either is unknown."""
        progress = self.progress
        if progress is None or not (self.begin and progress.end and progress.latest):
            return None
        done = sum(max(0, end - self.begin.get(where, 0)) for where, end in progress.end.items())
        lag = progress.lag
        return done, done + (lag.total if lag else 0)

    def seen(self, progress: BatchProgress) -> QueryView:
        """The view with a newer batch."""
        return replace(self, progress=progress, begin=self.begin or progress.start or progress.end)


def render(views: Sequence[QueryView]) -> Table:
    """The views as a table of rich, a row for each query. An unknown value is a dash."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("query", no_wrap=True, style="cyan")
    table.add_column("batch", justify="right")
    table.add_column("records/s", justify="right", style="green")
    table.add_column("read", width=_BAR_WIDTH)
    table.add_column("behind", justify="right")
    table.add_column("commit", justify="right", style="magenta")
    table.add_column("left", justify="right")
    table.add_column("state", no_wrap=True)
    for view in views:
        way = view.way
        bar: ProgressBar | str = "-"
        if way is not None:
            # An empty source counts as read to its end.
            bar = ProgressBar(total=max(1, way[1]), completed=way[0] if way[1] else 1, width=_BAR_WIDTH)
        batch, rate, behind, commit, left = _cells(view.progress)
        table.add_row(Text(view.label), batch, rate, bar, behind, commit, left, view.state)
    return table


def plain_line(view: QueryView) -> str:
    """The same in one line, for an output that is not a terminal."""
    batch, rate, behind, commit, left = _cells(view.progress)
    way = view.way
    read = "-" if way is None else f"{100 * way[0] // way[1] if way[1] else 100} %"
    return (
        f"{view.label}: {view.state}, batch {batch}, {rate} records/s, {read} read, {behind} behind, "
        f"commit {commit}, {left} left"
    )


def _cells(progress: BatchProgress | None) -> tuple[str, str, str, str, str]:
    """Batch, records/s, behind, commit, left."""
    if progress is None:
        return ("-",) * 5
    lag = progress.lag
    if progress.left_s is None:
        left = "-"
    else:
        left = "no timeout" if progress.left_s == math.inf else f"{progress.left_s:.0f} s"
    return (
        str(progress.batch_id),
        "-" if progress.rows_per_s is None else f"{progress.rows_per_s:,.0f}",
        "-" if lag is None else f"{lag.total:,}",
        "-" if progress.commit_ms is None else f"{progress.commit_ms:,.0f} ms",
        left,
    )


class ProgressDisplay:
    """Shows the queries while the `with` block runs, and their state at its end:

        with ProgressDisplay(query):
            query.awaitTermination()

    In a terminal a table that changes in place, in a notebook the cell's output, otherwise a line for each
    new batch. `console`: rich's, to show it elsewhere. `watch`: called with the views at every poll, from the
    display's thread.
    """

    def __init__(
        self,
        *queries: Query,
        console: Console | None = None,
        every_s: float = EVERY_S,
        watch: Callable[[Sequence[QueryView]], None] | None = None,
    ) -> None:
        self.console = Console() if console is None else console
        self._queries = queries
        self._every_s = every_s
        self._watch = watch
        self._views = [QueryView(query.name or str(query.id)) for query in queries]
        self._lines: list[str] = [""] * len(queries)
        self._show: Callable[[], None] = self._print_lines
        self._live: Live | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress-display", daemon=True)

    @property
    def views(self) -> Sequence[QueryView]:
        """The views shown now."""
        return tuple(self._views)

    def __enter__(self) -> Self:
        if self.console.is_jupyter:
            self._show = _notebook(self)
        elif self.console.is_terminal:
            self._live = Live(render(self._views), console=self.console, auto_refresh=False)
            self._live.start(refresh=True)
            self._show = self._refresh
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()
        if self._live is not None:
            self._live.stop()

    # ---- inside, in the display's thread

    def _run(self) -> None:
        try:
            for index, query in enumerate(self._queries):
                # Earlier progress is shown at once; its first entry gives the query's beginning.
                for each in query.recentProgress[:1]:
                    self._take(index, each)
            ended = False
            while not ended:
                # One more poll after the end: the last batch counts.
                ended = self._ending.wait(self._every_s)
                for index, query in enumerate(self._queries):
                    self._look(index, query)
                self._show()
                if self._watch is not None:
                    self._watch(self.views)
        except Exception:
            log.warning("the progress display ended after an error; the query continues", exc_info=True)

    def _look(self, index: int, query: Query) -> None:
        active = query.isActive
        last = query.lastProgress
        if last is not None:
            self._take(index, last)
        if not active:
            raised = query.exception()
            state = DONE if raised is None else error_name(str(raised), "failed") or DONE
            self._views[index] = replace(self._views[index], state=state)

    def _take(self, index: int, spark_progress: Any) -> None:
        body = json.loads(spark_progress.json)
        published = reports.find(str(body["id"]), int(body["batchId"]))
        self._views[index] = self._views[index].seen(read_progress(body, published))

    def _refresh(self) -> None:
        assert self._live is not None
        self._live.update(render(self._views), refresh=True)

    def _print_lines(self) -> None:
        for index, view in enumerate(self._views):
            line = plain_line(view)
            if view.progress is not None and line != self._lines[index]:
                self._lines[index] = line
                self.console.print(line, soft_wrap=True, markup=False, highlight=False)


def _notebook(display: ProgressDisplay) -> Callable[[], None]:
    """Show the table in the cell's output; return the function that updates it. (rich's own Live needs
    ipywidgets for that.)"""
    from IPython.display import display as show

    handle: Any = show(render(display.views), display_id=True)  # type: ignore[no-untyped-call]
    return lambda: handle.update(render(display.views))


def display_progress(*queries: Query) -> None:
    """Show the queries until they end; raises the error that ended one of them, as `awaitTermination`
    does."""
    with ProgressDisplay(*queries):
        for query in queries:
            query.awaitTermination()


__all__ = ["ProgressDisplay", "QueryView", "display_progress", "plain_line", "render"]
