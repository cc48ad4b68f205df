"""`python -m tests.simulation`: many histories, or one again from its seed or from its list of strikes.

Exit code 1 where the judge has something against one, or where the time was over before all were played; each such line
ends in the command that plays it again.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from tests.simulation import campaign, report, saved
from tests.simulation.campaign import Played, Totals
from tests.simulation.history import History, play_history
from tests.simulation.plans import CAMPAIGNS, AtRandom, Campaign, job_of, storms, varied
from tests.simulation.play import Outcome, play
from tests.simulation.shrink import problem_class

KEPT_EVERY = 20
"""Histories after which the counts of a campaign are kept."""

MOST_SHORTENED = 5
"""Histories of one campaign that are shortened, each of another class: one takes up to some minutes."""


def main() -> int:
    """Play what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, help="play this one and show its story")
    parser.add_argument("--history", help="play this list of strikes, as `History.text` has it, and show its story")
    parser.add_argument("--seeds", type=int, default=200, help="how many, of each campaign (200)")
    first = parser.add_mutually_exclusive_group()
    first.add_argument("--first", type=int, default=0, help="the first seed (0)")
    first.add_argument("--fresh", metavar="TEXT", help="the first seed is made from this text, a commit's hash")
    parser.add_argument("--scope", choices=("task", "batch"), help="of all; by the seed where it is not given")
    parser.add_argument("--transaction-version", type=int, choices=(1, 2), help="the same")
    parser.add_argument(
        "--profile",
        choices=sorted(storms()),
        metavar="NAME",
        help="what strikes at random (brief in a campaign, else storm)",
    )
    parser.add_argument("--campaign", nargs="*", choices=sorted(CAMPAIGNS), help="play these")
    parser.add_argument("--jobs", type=int, default=1, help="processes of a campaign (1)")
    parser.add_argument("--within", type=float, default=float("inf"), metavar="S", help="wall time of all campaigns")
    parser.add_argument(
        "--faults",
        type=float,
        default=float("inf"),
        help="a campaign is over with so many, whatever is left of its seeds",
    )
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="keep the counts there; a random campaign goes on where its file ends",
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help=f"write {report.PAGE.name}, with --keep of everything that is kept there",
    )
    parser.add_argument("--traces", action="store_true", help="print every seed with its trace, and nothing else")
    arguments = parser.parse_args()
    if arguments.fresh is not None:
        # Far from all the seeds that are named anywhere.
        arguments.first = 10**6 + int.from_bytes(
            hashlib.blake2b(arguments.fresh.encode(), digest_size=5).digest(), "big"
        )
    if arguments.history is not None:
        return _again(History.parse(arguments.history))
    if arguments.traces:
        return _traces(arguments)
    if arguments.campaign is not None:
        return _campaigns(arguments)
    return _seeds(arguments)


def _again(history: History) -> int:
    for strike in history.strikes:
        print(strike)
    outcome = play_history(history)
    _show(outcome)
    print("\n".join(outcome.problems) or "nothing is wrong")
    return 1 if outcome.problems else 0


def _show(outcome: Outcome) -> None:
    print(f"trace {outcome.trace}, {outcome.runs} runs, {outcome.seconds:.3f} s, fired {dict(outcome.fired)}")
    print("\n".join(outcome.errors))


def _played(arguments: argparse.Namespace, seed: int) -> Outcome:
    profile = arguments.profile or "storm"
    scope, version = varied(seed)
    batches, job = job_of(profile)
    return play(
        seed,
        storms()[profile],
        scope=arguments.scope or scope,
        transaction_version=arguments.transaction_version or version,
        batches=batches,
        job=job,
    )


def _traces(arguments: argparse.Namespace) -> int:
    campaign.prepare()
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        outcome = _played(arguments, seed)
        print(seed, outcome.trace, flush=True)
    return 0


# ---- campaigns


def _campaigns(arguments: argparse.Namespace) -> int:
    ended, over = [], time.monotonic() + arguments.within
    for name in arguments.campaign:
        of = CAMPAIGNS[name](arguments.seeds, arguments.first, arguments.profile or "brief")
        totals = _so_far(of, arguments.keep)
        for number, (_, played) in enumerate(
            campaign.carry_out(
                of,
                jobs=arguments.jobs,
                seconds=over - time.monotonic(),
                faults=arguments.faults,
                totals=totals,
            )
        ):
            if played.outcome.problems:
                print(f"{name}, seed {played.history.seed}: {played.outcome.problems}", flush=True)
            if arguments.keep and name == AtRandom.name and number % KEPT_EVERY == 0:
                saved.save(arguments.keep, replace(totals, left_out=max(0, of.seeds - totals.seeds)))
        if arguments.keep:
            saved.save(arguments.keep, totals)
        print(report.summary(totals, arguments.jobs), flush=True)
        _shorten(totals.bad)
        ended.append(totals)
    if arguments.write:
        shown = list(saved.all_of(arguments.keep)) if arguments.keep else ended
        report.PAGE.write_text(report.page(shown), encoding="utf-8")
    return 1 if any(each.bad or each.left_out for each in ended) else 0


def _so_far(of: Campaign, directory: Path | None) -> Totals:
    totals = Totals(of.name, of.about, of.storm, of.first)
    if directory is None or of.name != AtRandom.name or not saved.file_of(directory, totals).exists():
        return totals
    found = replace(saved.load(saved.file_of(directory, totals)), left_out=0)
    campaign.look_again(found)
    return found


def _shorten(bad: list[Played]) -> None:
    by_class: dict[str, Played] = {}
    for played in bad:
        best = by_class.setdefault(problem_class(played.outcome.problems), played)
        if len(played.history.strikes) < len(best.history.strikes):
            by_class[problem_class(played.outcome.problems)] = played
    for number, (what, played) in enumerate(by_class.items()):
        if number == MOST_SHORTENED:
            print(f"{len(by_class) - number} more kinds of problems are not shortened")
            return
        history, plays = campaign.shortened(played)
        print(f"{what}: {len(played.history.strikes)} strikes, {len(history.strikes)} after {plays} plays; again:")
        for strike in history.strikes:
            print(f"    {strike}")
        print(f"    {history.command}", flush=True)


# ---- seeds of a storm


def _seeds(arguments: argparse.Namespace) -> int:
    if arguments.seed is None:
        logging.disable(logging.CRITICAL)
    seeds = (
        [arguments.seed] if arguments.seed is not None else range(arguments.first, arguments.first + arguments.seeds)
    )
    fired: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    bad, steps, virtual_s, began = 0, 0, 0.0, time.process_time()
    for seed in seeds:
        outcome = _played(arguments, seed)
        fired.update(outcome.fired)
        errors.update(error.split(":")[0] for error in outcome.errors)
        steps += outcome.steps
        virtual_s += outcome.seconds
        if outcome.problems:
            bad += 1
            again = f"{outcome.command} --profile {arguments.profile or 'storm'}"
            print(f"{outcome.problems} after {outcome.errors[-2:]}; again: {again}", flush=True)
        if arguments.seed is not None:
            _show(outcome)
    cpu_s = time.process_time() - began
    print(f"{len(seeds)} seeds, {bad} bad, {steps} steps, {virtual_s:.0f} virtual s, {cpu_s:.1f} CPU s")
    print(f"fired: {dict(fired.most_common())}")
    print(f"runs ended with: {dict(errors.most_common())}")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
