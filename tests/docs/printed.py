"""What the commands of docs/runbook.md print after a kill, made by a run on the embedded broker.

    python -m tests.docs.printed      writes it into the page

Owns: the two stories, what of a run's output differs from run to run.
Does not know: the rest of the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from embedded_kafka.embedded import EmbeddedKafka
from tests.pyspark_kafka_eos.cli.cli_tools import Settings, killed, shown
from tests.pyspark_kafka_eos.commit.child import run_child
from tests.pyspark_kafka_eos.commit.judge import ROWS

PAGE = Path(__file__).parents[2] / "docs" / "runbook.md"
BEGIN, END = "<!-- printed: made by python -m tests.docs.printed -->", "<!-- end of printed -->"
PIPELINE, OUTPUT, SOURCE = "clean-orders", "orders.clean", "orders"

Printed = list[tuple[str, int, str]]
"""Command, exit code, output."""


def stories() -> dict[str, Printed]:
    """Each story on a broker of its own: what is typed, in its order, and what comes."""
    return {
        "A driver was killed before the decision, and the query cannot be started soon": _typed(
            "before-decision",
            "transactions explain clean-orders", "transactions abort clean-orders --yes", "transactions explain clean-orders",
        ),
        "A driver was killed after the decision, and the query cannot be started soon": _typed(
            "ends-arrived:1",
            "transactions explain clean-orders", "verify clean-orders", "transactions abort clean-orders --yes",
            "transactions commit clean-orders --yes", "verify clean-orders",
        ),
    }  # fmt: skip


def _typed(point: str, *commands: str) -> Printed:
    with EmbeddedKafka() as broker:
        assert shown(broker, "topic", "create", OUTPUT, SOURCE, "--partitions", "4")[0] == 0
        settings: Settings = {
            "options": {
                "kafka.bootstrap.servers": broker.bootstrap_servers, "pipeline": PIPELINE, "topic": OUTPUT,
                "kafka.transaction.timeout.ms": "600000",
            },
            "query": "6b9a1f52-0c1d-4b62-9d55-3f1c8a7d1e11", "batch": 0, "rows": ROWS, "offsets": [[SOURCE, 0, 17], [SOURCE, 3, 4]],
        }  # fmt: skip
        killed(broker, point, settings)
        found = [(f"kafka-eos {command}", *shown(broker, *command.split())) for command in commands]
        # The story ends as the page says: the next run begins, and nothing of the batch is lost or there twice.
        assert run_child(settings).report["records"] == sum(map(len, ROWS))
        return found


def stable(output: str) -> str:
    """The output without what differs from run to run: times, ages, ids, digests, the width of tables."""
    output = re.sub(r"\$ echo \$\?\n(\d+)", r"exit_\1", output)
    output = re.sub(r"\b\d+(?:\.\d+)? ?(?:ms|s|min|seconds?|minutes?)\b", "TIME", output)
    output = re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d)?(?:\.\d+)?\S*", "WHEN", output)
    output = re.sub(r"\b[0-9a-f]{16}\b", "DIGEST", output)
    output = re.sub(r"\b\d+\b", "N", output)
    return re.sub(r"[\s─━]+", " ", output).strip()


def pieces(found: dict[str, Printed]) -> Iterator[str]:
    """The stories as they stand on the page."""
    for title, printed in found.items():
        yield f"**{title}**"
        for command, code, output in printed:
            lines = "\n".join(line.rstrip() for line in output.strip("\n").splitlines())
            yield f"```console\n$ {command}\n{lines}\n$ echo $?\n{code}\n```"


def current() -> str:
    """What stands between the marks now."""
    return PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip()


def main() -> None:
    """Write the stories into the page, where they differ by more than what differs from run to run."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    text = "\n\n".join(pieces(stories()))
    if stable(text) == stable(current()):
        return
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
