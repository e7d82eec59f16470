"""What the whole daemon costs: processor share, memory, time to the first good scrape, time to stop.

``python bench/daemon.py [SCENARIO | real]`` runs for 60 s at the default tiers with a scrape every 15 s.
Memory is the proportional set size of both processes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from table import show

PORT = 19839
SECONDS = 60
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Measure and print."""
    scenario = sys.argv[1] if len(sys.argv) > 1 else "training"
    real = scenario == "real"
    command = ["run", f"--port={PORT}", "--address=127.0.0.1"] if real else ["demo", "--scenario", scenario, "--port", str(PORT)]
    started = time.monotonic()
    daemon = subprocess.Popen([sys.executable, "-m", "gpuwatch", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        first = until_ready(started)
        time.sleep(5)
        processes = {"agent": daemon.pid, "reader": child_of(daemon.pid)}
        before = {name: cpu_seconds(pid) for name, pid in processes.items()}
        begun = time.monotonic()
        while time.monotonic() - begun < SECONDS:
            series = scrape()
            time.sleep(15)
        elapsed = time.monotonic() - begun
        shares = {name: (cpu_seconds(pid) - before[name]) / elapsed * 100 for name, pid in processes.items()}
        memory = {name: proportional_mib(pid) for name, pid in processes.items()}
    finally:
        stopped = time.monotonic()
        daemon.send_signal(signal.SIGTERM)
        code = daemon.wait()
        stopping = time.monotonic() - stopped
    limit = "115" if real else "96 (goal 80)"
    rows = [
        ("processor, % of one core", shares["agent"], shares["reader"], sum(shares.values()), "0.5"),
        ("memory, PSS MiB", memory["agent"], memory["reader"], sum(memory.values()), limit),
        ("first good scrape, s", "-", "-", first, "1"),
        (f"exit after SIGTERM, s (status {code})", "-", "-", stopping, "2"),
    ]
    show(f"The daemon on {scenario}, {series} series", ("", "agent", "reader", "both", "budget"), rows)
    return 0


def until_ready(started: float) -> float:
    """Seconds from the start to the first scrape that shows a GPU."""
    while time.monotonic() - started < 60:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/readyz") as answer:
                if answer.status == 200:
                    return time.monotonic() - started
        except OSError:
            time.sleep(0.01)
    raise SystemExit("the daemon was not ready within 60 s")


def scrape() -> int:
    """Number of series of one scrape."""
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics") as answer:
        return sum(not line.startswith(b"#") for line in answer.read().splitlines())


def child_of(pid: int) -> int:
    """The reader's process id."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def cpu_seconds(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def proportional_mib(pid: int) -> float:
    """Proportional set size."""
    line = next(line for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines() if line.startswith("Pss:"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    sys.exit(main())
