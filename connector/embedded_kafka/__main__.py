"""`python -m embedded_kafka`: the embedded broker in a process of its own, until SIGTERM or SIGINT.

Prints one line of JSON when the broker is ready: its listening address and its control socket. Errors go to
stderr, with exit code 1, and with --json-errors to stdout too, as a line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from embedded_kafka.child.ports import BROKERS_AT_MOST, ports_from
from embedded_kafka.child.start_error import line_of
from embedded_kafka.serving import serve
from kafka_core.errors import ExactlyOnceError, OptionsError


def main(arguments: list[str] | None = None) -> int:
    """Run a broker; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="kafka-eos broker",
        description="A Kafka broker on 127.0.0.1, or several, for tests and first steps.",
    )
    parser.add_argument(
        "--data-dir",
        type=Path,
        help="the data directory (default: a temporary directory, removed on exit)",
    )
    parser.add_argument("--brokers", type=int, help="how many, in this process (default: one for each port)")
    parser.add_argument(
        "--port",
        type=_ports,
        default=[9092],
        metavar="PORT[,...]",
        help="0 picks a free port (default: 9092); of several brokers those that are not named have the next ones",
    )
    parser.add_argument("--zookeeper", metavar="HOST:PORT[,...]", help="get producer ids from this ensemble")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        type=_pair,
        metavar="NAME=VALUE",
        help="a broker setting, by its Kafka name",
    )
    parser.add_argument("--json-errors", action="store_true", help="print why it cannot start as a line of JSON, too")
    parser.add_argument("--verbose", action="store_true", help="log connection activity")
    options = parser.parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO if options.verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    directory = options.data_dir or Path(tempfile.mkdtemp(prefix="kafka-eos-broker-"))
    try:
        asyncio.run(_run(directory, _for(options.port, options.brokers), options.zookeeper, dict(options.set)))
    except (ExactlyOnceError, OSError) as error:
        print(f"kafka-eos broker: {error}", file=sys.stderr)
        if options.json_errors and isinstance(error, ExactlyOnceError):
            print(line_of(error))
        return 1
    finally:
        if options.data_dir is None:
            shutil.rmtree(directory, ignore_errors=True)
    return 0


async def _run(directory: Path, ports: list[int], zookeeper: str | None, settings: dict[str, str]) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with serve(directory, ports, zookeeper, settings) as ready:
        print(json.dumps(ready), flush=True)
        await stopped.wait()


def _for(ports: list[int], brokers: int | None) -> list[int]:
    missing = len(ports) if brokers is None else brokers
    if not len(ports) <= missing <= BROKERS_AT_MOST:
        raise OptionsError(f"there can be {len(ports)} to {BROKERS_AT_MOST} brokers with these ports, not {missing}")
    return ports[:-1] + ports_from(ports[-1], missing - len(ports) + 1)


def _ports(text: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected numbers with commas between them, got {text!r}") from None


def _pair(setting: str) -> tuple[str, str]:
    name, equals, value = setting.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, got {setting!r}")
    return name.strip(), value.strip()


if __name__ == "__main__":
    sys.exit(main())
