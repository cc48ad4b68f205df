"""What setup.cfg cannot say: the description on an index page is made of README.md by tools/index_page.py.

Everything else about the package is in setup.cfg.
"""

import runpy
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent

# Not an import: an isolated build has only setuptools, and this directory is not on its path.
index_page = runpy.run_path(str(ROOT / "tools" / "index_page.py"))["index_page"]

setup(long_description=index_page((ROOT / "README.md").read_text(encoding="utf-8")))
