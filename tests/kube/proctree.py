"""A /proc of plain files: what a test puts in is what the source sees."""

from __future__ import annotations

import shutil
from pathlib import Path


class ProcTree:
    """A root directory like a node's ``/proc``."""

    def __init__(self, root: Path, *, is_host: bool = True) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self.add(2, cgroup="0::/\n", name="kthreadd" if is_host else "sleep")

    def add(self, pid: int, *, cgroup: str | bytes, name: str = "python3", state: str = "S", start: int = 1000) -> None:
        """Put a process there, in place of one with the same PID."""
        directory = self.root / str(pid)
        directory.mkdir(exist_ok=True)
        (directory / "comm").write_text(f"{name}\n")
        (directory / "stat").write_text(stat_line(pid, name=name, state=state, start=start))
        (directory / "cgroup").write_bytes(cgroup.encode() if isinstance(cgroup, str) else cgroup)

    def end(self, pid: int) -> None:
        """Let a process end."""
        shutil.rmtree(self.root / str(pid))


def stat_line(pid: int, *, name: str = "python3", state: str = "S", start: int = 1000) -> str:
    """``/proc/PID/stat`` with 52 fields, as proc(5) has them."""
    before = "1 1 1 0 -1 4194560 21 0 0 0 3 4 0 0 20 0 1 0"
    after = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30"
    return f"{pid} ({name}) {state} {before} {start} {after}\n"
