"""Which pins of locks have a known weakness: `python -m tools.audit LOCK...`, by pip-audit.

Where its list of weaknesses cannot be had, nothing is known, and that is what is printed: never that all is well. Exits
with 1 for a weakness, and where some pins were looked up and others were not.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask for each lock."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(prog="python -m tools.audit", description=__doc__.splitlines()[0])
    parser.add_argument("locks", nargs="+", type=Path, metavar="LOCK")
    code = 0
    for lock in parser.parse_args(arguments).locks:
        asked = subprocess.run(
            [
                sys.executable, "-m", "pip_audit", "--requirement", lock, "--require-hashes", "--disable-pip", "--format", "json",
                "--progress-spinner", "off",
            ], capture_output=True, text=True, check=False,
        )  # fmt: skip
        wrong, line = judged(lock.name, asked.stdout, asked.stderr)
        code |= wrong
        sys.stdout.write(line + "\n")
    return code


def judged(name: str, output: str, errors: str = "") -> tuple[bool, str]:
    """Whether somebody has to act, and what is said of a lock. `output`: pip-audit's JSON."""
    try:
        found: list[dict[str, Any]] = json.loads(output)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return False, f"{name}: NOT AUDITED: the list of weaknesses cannot be had here: {errors.strip()[-300:]}"
    weak = [f"{each['name']} {each['version']}: {_ids(each)}" for each in found if each.get("vulns")]
    skipped = [each["name"] for each in found if "skip_reason" in each]
    if weak:
        return True, f"{name}: {len(weak)} pins have known weaknesses: {'; '.join(weak)}"
    if len(skipped) == len(found):
        return False, f"{name}: NOT AUDITED: nothing is known here of any of its {len(found)} pins"
    if skipped:
        return True, f"{name}: {len(skipped)} of {len(found)} pins were not looked up: {', '.join(skipped[:10])}"
    return False, f"{name}: no known weakness in {len(found)} pins"


def _ids(dependency: dict[str, Any]) -> str:
    return ", ".join(each["id"] for each in dependency["vulns"])


if __name__ == "__main__":
    sys.exit(main())
