"""One scenario side by side, for whoever has to find out why two brokers differ.

.venv/bin/python -m tests.differential end-txn-ongoing [more, or patterns] [--pair 4.4.0] [--all]
"""

from __future__ import annotations

import argparse
import json
import sys
from fnmatch import fnmatchcase

from tests.differential import compare
from tests.differential.brokers import PAIRS, open_brokers
from tests.differential.known import KNOWN
from tests.differential.known_table import DOCUMENT, with_table
from tests.differential.script import scenarios


def main() -> int:
    """Play, and print the steps whose answers differ, or all; 1 where something is neither equal nor known."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__.splitlines()[0])
    parser.add_argument("scenario", nargs="*", default=["*"], help="names or patterns (all)")
    parser.add_argument("--pair", choices=list(PAIRS), action="append", help="(all)")
    parser.add_argument("--all", action="store_true", help="print equal answers too")
    parser.add_argument(
        "--at", action="append", default=[], metavar="BROKER=HOST:PORT",
        help='a broker that runs already: "embedded-1", "3.9.1-1", "4.4.0-2" (version of transactions last)',
    )  # fmt: skip
    parser.add_argument("--write-known", action="store_true", help="only write docs/embedded-broker.md's table")
    arguments = parser.parse_args()
    if arguments.write_known:
        DOCUMENT.write_text(with_table(DOCUMENT.read_text()))
        return 0
    bad = 0
    with open_brokers(dict(given.split("=") for given in arguments.at)) as brokers:
        for scenario in scenarios():
            if not any(fnmatchcase(scenario.name, pattern) for pattern in arguments.scenario):
                continue
            for pair in (PAIRS[name] for name in arguments.pair or PAIRS):
                if not pair.plays(scenario):
                    continue
                embedded, real = map(dict, brokers.transcripts(scenario, pair))
                found = compare.differences(embedded.items(), real.items())
                wrong = compare.problems(pair.name, scenario.name, found, KNOWN)
                bad += len(wrong)
                _say(f"== {scenario.name} | {pair.name}: {len(real)} steps, {len(found)} differences")
                for step in dict.fromkeys([*embedded, *real]):
                    ours, theirs = embedded.get(step), real.get(step)
                    if ours != theirs:
                        _say(f"  * {step}\n      real     {json.dumps(theirs)}\n      embedded {json.dumps(ours)}")
                    elif arguments.all:
                        _say(f"    {step}\n      both     {json.dumps(ours)}")
                for problem in wrong:
                    _say(f"  ! {problem}")
    return 1 if bad else 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
