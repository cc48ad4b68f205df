"""`kafka-eos job`: runs a job of the package, or writes the files that it starts from.

    kafka-eos job init produce
    kafka-eos job produce --conf-file produce.yaml

Owns: the names of the shapes, and writing their files.
Does not know: what a job does.
Invariants:
- `init` overwrites no file.
- Only a shape that is run loads Spark.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path

SHAPES = {
    "produce": ("ProduceConfig", "any streaming source of Spark to Kafka"),
    "transform": ("TransformConfig", "Kafka to Kafka"),
    "consume": ("ConsumeConfig", "committed records of Kafka to files"),
}
"""Shape -> its form in `pyspark_kafka_eos.jobs.config`, what it does."""

SPARK_DEFAULTS = "spark-defaults.conf"
"""The file of Spark settings that the YAML files name."""

SCRIPT = "job.py"
"""The script that spark-submit starts for any shape."""

_WRONG_USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Exit codes of a shape: see `pyspark_kafka_eos.jobs.job`; of init: 0, or 1 where a file is in the
    way.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] and words[0] in SHAPES:
        return _run(words[0], words[1:])
    parser = argparse.ArgumentParser(
        prog="kafka-eos job",
        description="Run a job by its YAML file, or write one to start from.",
        epilog="; ".join(f"{name}: {about}" for name, (_, about) in SHAPES.items()),
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (_, about) in SHAPES.items():
        # Only for the help: these are run above.
        commands.add_parser(name, help=f"{about}: --conf-file FILE")
    init = commands.add_parser("init", help="write a job's YAML file, its Spark settings and a script")
    init.add_argument("shape", choices=SHAPES)
    init.add_argument("--directory", type=Path, default=Path(), help="where (default: here); made if missing")
    given = parser.parse_args(words)
    return _init(given.shape, given.directory)


def _run(shape: str, words: list[str]) -> int:
    form, _ = SHAPES[shape]
    try:
        from pyspark_kafka_eos.jobs import config, job

        module = importlib.import_module(f"pyspark_kafka_eos.jobs.{shape}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyspark":
            raise
        sys.stderr.write(
            f"kafka-eos job {shape}: pyspark is missing: pip install 'pyspark-kafka-eos[spark]', or start it with the "
            "Python of your Spark\n"
        )
        return _WRONG_USAGE
    return job.main(module.prepare, getattr(config, form), module.__doc__, words, prog=f"kafka-eos job {shape}")


def _init(shape: str, directory: Path) -> int:
    texts = {name: template(name) for name in (f"{shape}.yaml", SPARK_DEFAULTS, SCRIPT)}
    # The settings and the script are the same for every shape.
    texts = {name: text for name, text in texts.items() if not _has(directory / name, text)}
    in_the_way = [name for name in texts if (directory / name).exists()]
    if in_the_way:
        names = " and ".join(str(directory / name) for name in in_the_way)
        sys.stderr.write(
            f"kafka-eos job init: {names}: there already, with another text; nothing was written. Choose another --directory\n"
        )
        return 1
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (directory / name).write_text(text)
    sys.stdout.write(f"{directory / f'{shape}.yaml'}\n")
    return 0


def _has(path: Path, text: str) -> bool:
    return path.is_file() and path.read_bytes() == text.encode()


def template(name: str) -> str:
    """The text of a file that comes with the package."""
    text = pkgutil.get_data("pyspark_kafka_eos.jobs", f"templates/{name}")
    assert text is not None
    return text.decode()


if __name__ == "__main__":
    sys.exit(main())
