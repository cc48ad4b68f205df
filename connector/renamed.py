"""Where classes of earlier versions live now: after an upgrade, plans and handed-over batches that these
pickled are read.

Invariants:
- An old name gives today's module, not a second copy of it.
- The product itself uses no old name.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType

NOW = {
    "connector.commit.batch_write": "connector.commit.dataframe_write",
    "connector.commit.plan": "connector.slot.plan",
}
"""Old name -> today's. Only modules whose classes were pickled; tests/commit/golden has such pickles."""


class _Renamed(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return spec_from_loader(fullname, self) if fullname in NOW else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return importlib.import_module(NOW[spec.name])

    def exec_module(self, module: ModuleType) -> None:
        """The module was executed under today's name and keeps it: the import has just put the old name into
        `__spec__`."""
        module.__spec__ = spec_from_loader(module.__name__, module.__loader__, origin=module.__file__)


def follow() -> None:
    """Make old names importable. Idempotent."""
    if not any(type(finder).__name__ == _Renamed.__name__ for finder in sys.meta_path):
        sys.meta_path.append(_Renamed())
