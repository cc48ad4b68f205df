"""How much memory a process has in use, as Linux tells it."""

from __future__ import annotations

from pathlib import Path


def resident_bytes(process: int | str = "self") -> int:
    """VmRSS of a process, by its id."""
    status = Path(f"/proc/{process}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS"))
