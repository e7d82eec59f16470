"""The demo: serves a simulated node, and lets a person make its GPUs fail while it runs."""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
import structlog

from gpuwatch import agent
from gpuwatch.config import ConfigError
from gpuwatch.device.simulated import InjectionError, load_scenario
from gpuwatch.device.simulated.injection_file import Rehearsal

if TYPE_CHECKING:
    from gpuwatch.config import Settings
    from gpuwatch.device.wire import Simulation


def serve(settings: Settings, simulation: Simulation, inject_file: Path | None) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code. What to open is told once the port is listened on.

    Raises:
        ConfigError: ``inject_file`` cannot be used.
    """
    tell = partial(_tell, settings.server.address, simulation.scenario)
    if inject_file is None:
        return agent.run(settings, simulation, tell)
    with tempfile.TemporaryDirectory(prefix="gpuwatch-demo-") as folder:
        told = Path(folder, "injected.json")
        rehearsal = _rehearsal(inject_file, told, simulation.scenario)
        started = time.monotonic()
        threading.Thread(target=rehearsal.run, args=(lambda: time.monotonic() - started,), name="rehearsal", daemon=True).start()
        return agent.run(settings, msgspec.structs.replace(simulation, injected_file=str(told)), tell)


def _rehearsal(inject_file: Path, told: Path, scenario: str) -> Rehearsal:
    log = structlog.get_logger("gpuwatch.demo")

    def warn(problem: str) -> None:
        log.warning("the file of injected faults cannot be used; what it said before stays", file=str(inject_file), problem=problem)

    try:
        return Rehearsal(inject_file, told, load_scenario(scenario), warn=warn)
    except InjectionError as error:
        raise ConfigError(f"--inject-file {inject_file}: {error}") from None


def _tell(address: str, scenario: str, port: int) -> None:
    """Say that nothing here is real, and what to open."""
    host = f"[{address}]" if ":" in address else address
    click.secho(
        f"\n  SIMULATED node, scenario {scenario}: every value is made up; no GPU of this machine is read.\n", fg="yellow", bold=True
    )
    click.echo(f"  Open     http://{host}:{port}/\n  Metrics  http://{host}:{port}/metrics\n  Stop     Ctrl+C\n")
    sys.stdout.flush()
