"""What setup.cfg cannot say: the description on an index page is made of README.md by tools/index_page.py, and the same
sources make the same wheel, byte by byte.

Everything else about the package is in setup.cfg.
"""

import os
import runpy
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

# A wheel has its files' times and modes: neither the day of the checkout nor the builder's umask may show in it.
os.environ.setdefault("SOURCE_DATE_EPOCH", "1577836800")  # 2020-01-01
os.umask(0o022)


def same_modes(paths):
    """Files are copied with the mode that they have in the checkout."""
    for path in paths:
        os.chmod(path, 0o644)


class Modules(build_py):
    """The packages' files, also those that are no modules."""

    def run(self):
        """Build them."""
        super().run()
        if not self.editable_mode:
            same_modes(self.get_outputs())


class Wheel(bdist_wheel):
    """The wheel, with its licence."""

    def egg2dist(self, egginfo_path, distinfo_path):
        """Put the metadata together."""
        super().egg2dist(egginfo_path, distinfo_path)
        same_modes(each for each in Path(distinfo_path).rglob("*") if each.is_file())


ROOT = Path(__file__).resolve().parent

# Not an import: an isolated build has only setuptools, and this directory is not on its path.
index_page = runpy.run_path(str(ROOT / "tools" / "index_page.py"))["index_page"]

setup(
    cmdclass={"build_py": Modules, "bdist_wheel": Wheel},
    long_description=index_page((ROOT / "README.md").read_text(encoding="utf-8")),
)
