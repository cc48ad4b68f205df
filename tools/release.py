"""What is handed out: `python -m tools.release dist` makes source archive, wheel, bill of materials and their hashes.

The wheel is made from the unpacked source archive, with the setuptools of the lock, so whoever has the archive makes
the same wheel, byte by byte.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tools.bill_of_materials import written

ROOT = Path(__file__).resolve().parents[1]

_BUILD = """
import sys
from setuptools import build_meta
print(getattr(build_meta, f"build_{sys.argv[1]}")(sys.argv[2]))
"""


def main() -> int:
    """Make everything anew in the directory."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory.resolve()
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as temporary:
        archive = built("sdist", ROOT, directory)
        with tarfile.open(archive) as file:
            file.extractall(temporary, filter="data")
        (sources,) = Path(temporary).iterdir()
        wheel = built("wheel", sources, directory)
    bill = directory / f"{wheel.name.partition('-py3')[0]}.cdx.json"
    bill.write_text(written(wheel, ROOT / "requirements" / "product.txt"))
    made = (archive, wheel, bill)
    lines = [f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in made]
    (directory / "SHA256SUMS").write_text("".join(lines))
    sys.stdout.write("".join(lines))
    return 0


def built(kind: str, sources: Path, directory: Path) -> Path:
    """What the build back end makes of the sources, in a process of its own, without anything being fetched. `kind`:
    wheel or sdist. RuntimeError with the end of what it said, where it fails.
    """
    ended = subprocess.run(
        [sys.executable, "-c", _BUILD, kind, directory], cwd=sources, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        raise RuntimeError(ended.stderr[-3000:])
    return directory / ended.stdout.splitlines()[-1]


if __name__ == "__main__":
    sys.exit(main())
