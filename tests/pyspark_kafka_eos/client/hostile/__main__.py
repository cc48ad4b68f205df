"""`python -m tests.pyspark_kafka_eos.client.hostile --answers 50000 --seed 1`: plays that many hostile answers and
prints what came of them.

`--case n` plays one again; `--record` makes the recorded conversation anew from the embedded broker.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
import warnings


def main() -> int:
    """1 where there was a defect."""
    parser = argparse.ArgumentParser(prog="python -m tests.pyspark_kafka_eos.client.hostile", description=__doc__)
    parser.add_argument("--answers", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int)
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore", DeprecationWarning)
    from tests.pyspark_kafka_eos.client.hostile import operations
    from tests.pyspark_kafka_eos.client.hostile.play import Player, doors, table

    if given.record:
        operations.record().save()
        return 0
    began = time.monotonic()
    ended = threading.Event()
    # What was played until then is printed.
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with doors() as found, Player(found, given.seed) as player:
        for number in range(given.answers) if given.case is None else [given.case]:
            if ended.is_set():
                break
            player.play(number)
            if number % 1000 == 999:
                sys.stderr.write(f"{number + 1} after {time.monotonic() - began:.0f} s\n")
    sys.stdout.write(table(player.told) + "\n")
    for each in player.told.defects[:50]:
        sys.stdout.write(f"\nDEFECT {each}\n")
    return 1 if player.told.defects else 0


if __name__ == "__main__":
    sys.exit(main())
