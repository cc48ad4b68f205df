"""How much memory a process has in use, as Linux tells it."""

from __future__ import annotations

from pathlib import Path


def resident_bytes(process: int | str = "self") -> int:
    """VmRSS of a process, by its id."""
    return _status("VmRSS:", process)


def peak_bytes(process: int | str = "self") -> int:
    """VmHWM: the most that was resident since `forget_peak`."""
    return _status("VmHWM:", process)


def forget_peak() -> None:
    """Have this process's peak begin anew."""
    Path("/proc/self/clear_refs").write_text("5")


def _status(name: str, process: int | str) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(name))
