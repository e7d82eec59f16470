"""The command ``gpuwatch``.

Exit codes: 0 done; 1 no GPU could be read (``once``), a GPU could not be read (``check``), an agent did not answer (``top``), or an
unexpected error; 2 the command line or the configuration is wrong; 3 cannot listen (the port is taken, a certificate cannot be loaded);
4 all GPUs can be read and the verdict on one is failed (``check``).
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch import __version__
from gpuwatch.config import ConfigError, Settings, load
from gpuwatch.flags import number, pair, simulation_of, with_injections, with_listener, with_pairs, with_scenario, with_settings
from gpuwatch.log import configure_log
from gpuwatch.top.command import top

if TYPE_CHECKING:
    from gpuwatch.device.wire import Simulation

EXIT_OK, EXIT_NO_GPU, EXIT_USAGE = 0, 1, 2
EXIT_FAILED = 1
EXIT_VERDICT = 4
EXIT_INTERRUPTED, EXIT_TERMINATED = 130, 143

_FORMATS = {"text": "text/plain;version=0.0.4", "openmetrics": "application/openmetrics-text;version=1.0.0"}
_EXIT_CODES = """\b
Exit codes:
  0  done
  1  no GPU could be read (once), a GPU could not be read (check), an agent
     did not answer (top), or an unexpected error
  2  the command line or the configuration is wrong
  3  cannot listen (the port is taken, a certificate cannot be loaded)
  4  all GPUs can be read, and the verdict on one is failed (check)"""
_LEVEL_VARIABLE = "GPUWATCH_LOG__LEVEL"
_SETTINGS_ORDER = "Settings come from the configuration file, then GPUWATCH_* variables, then flags; the later wins."
_DEMO_EXAMPLES = """\b
Try your alert routing:
  gpuwatch demo --inject xid=79,gpu=3
  gpuwatch demo --scenario idle --inject fault=power-brake,gpu=0,at=30,for=600
docs/demo.md says what can be injected."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXIT_CODES)
@click.version_option(__version__, message="%(prog)s %(version)s")
def commands() -> None:
    """Prometheus metrics of NVIDIA GPUs that stay right when a GPU or a driver misbehaves."""


@commands.command(epilog=_SETTINGS_ORDER)
@with_listener
@with_settings
def run(settings: Settings) -> int:
    """Read the GPUs of this node and serve /metrics until stopped."""
    from gpuwatch import agent

    return agent.run(settings, None)


@commands.command(epilog=_SETTINGS_ORDER)
@with_settings
@with_scenario
@click.option("--format", "form", type=click.Choice([*_FORMATS, "json"]), default="text", show_default=True, help="Form of the output.")
def once(settings: Settings, simulation: Simulation | None, form: str) -> int:
    """Read the GPUs once and print the metrics."""
    from gpuwatch import agent
    from gpuwatch.metrics.exposition import Exposition

    snapshot = agent.once(settings, simulation)
    if form == "json":
        from gpuwatch.web.document import encode_snapshot

        body = encode_snapshot(snapshot) + b"\n"
    else:
        body, _ = Exposition(None).render(snapshot, _FORMATS[form], "")
    sys.stdout.buffer.write(body)
    sys.stdout.flush()
    if any(gpu.up for gpu in snapshot.gpus):
        return EXIT_OK
    click.echo(f"gpuwatch: no GPU could be read: {snapshot.detail or snapshot.fault or 'every GPU has a fault'}", err=True)
    return EXIT_NO_GPU


@commands.command(short_help="Serve a SIMULATED node; needs no GPU.", epilog=_DEMO_EXAMPLES)
@with_listener
@click.option("--scenario", default="mixed-fleet", show_default=True, metavar="NAME", help="See 'gpuwatch scenarios'; or a scenario file.")
@with_injections
@click.option(
    "--inject-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A YAML list of such faults; edit it while the demo runs, and they come and go.",
)
@with_pairs
@click.option("--log-level", default="warning", show_default=True, metavar="LEVEL", help="debug, info, warning or error.")
def demo(
    *,
    scenario: str,
    specs: tuple[str, ...],
    inject_file: Path | None,
    address: str | None,
    port: str | None,
    pairs: tuple[str, ...],
    log_level: str,
) -> int:
    """Serve a SIMULATED node: no GPU, no driver, no Kubernetes needed."""
    from gpuwatch import demo as simulated_node

    simulation = simulation_of(scenario, None, specs)
    # A demo takes nothing from this machine's real configuration, and only this machine can reach it unless asked otherwise.
    flags = {"node_name": "simulated-node", "server.address": address or "127.0.0.1", "log.level": log_level}
    flags |= ({"server.port": port} if port is not None else {}) | dict(pair(text) for text in pairs)
    settings = load(Path("/dev/null"), environment={}, flags=flags)
    configure_log(settings.log)
    return simulated_node.serve(settings, simulation, inject_file)


@commands.command()
def scenarios() -> int:
    """List the simulated scenarios for demo, once and check."""
    from gpuwatch.device.simulated import scenario_names

    names = scenario_names()
    width = max(map(len, names), default=0)
    for name, sentence in names.items():
        click.echo(f"{name:<{width}}  {sentence}")
    return EXIT_OK


@commands.command(short_help="Record the driver's answers for a bug report.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=1, max=3600),
    default=30,
    show_default=True,
    callback=number,
    help="How long to record: 1 to 3600.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("gpuwatch-recording.json"),
    show_default=True,
    help="File to write.",
)
def record(seconds: float, output: Path) -> int:
    """Record what this node's driver answers, without names and serial numbers, for a bug report or a test."""
    from gpuwatch.device import recording
    from gpuwatch.device.nvml import NVMLError

    try:
        recording.record(output, seconds)
    except (NVMLError, OSError) as error:
        click.echo(f"gpuwatch: cannot record to {output}: {error}", err=True)
        return EXIT_FAILED
    click.echo(f"Wrote {output}.")
    return EXIT_OK


@commands.command(epilog=_SETTINGS_ORDER)
@with_settings
@with_scenario
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True, help="json: as 'once' prints it.")
def check(settings: Settings, simulation: Simulation | None, form: str) -> int:
    """Say what gpuwatch can read on this node, why it cannot, and which GPU needs somebody."""
    from gpuwatch import agent
    from gpuwatch.doctor import host, report

    snapshot = agent.once(settings, simulation)
    told = report.report_of(snapshot, host.probe_host() if simulation is None and form == "text" else None)
    if form == "json":
        from gpuwatch.web.document import encode_snapshot

        click.echo(encode_snapshot(snapshot).decode())
    else:
        click.echo("\n".join(told.lines))
    if not told.healthy:
        return EXIT_NO_GPU
    return EXIT_VERDICT if told.failed else EXIT_OK


@commands.command(short_help="Write the generated documents of the source tree.")
@click.option("--check", "check_only", is_flag=True, help="Write nothing; fail when a generated file differs.")
@click.option(
    "--root", type=click.Path(path_type=Path, exists=True, file_okay=False), default=Path(), help="The source tree. [default: here]"
)
def generate(root: Path, *, check_only: bool) -> int:
    """Write the generated documents of the source tree (for contributors)."""
    from gpuwatch import generate as generator
    from gpuwatch.dashboards.pack import SdkMissingError

    try:
        changed = generator.generate(root, check=check_only)
    except SdkMissingError as error:
        raise click.ClickException(str(error)) from None
    for path in changed:
        click.echo(f"{path} {'differs; run: gpuwatch generate' if check_only else 'written'}")
    return EXIT_FAILED if check_only and changed else EXIT_OK


commands.add_command(top)


def main() -> None:
    """Run the command line and leave with its exit code; an error is one line, with its traceback only at log level debug."""
    # The first process of a container is not ended by a signal that it does not handle.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(EXIT_TERMINATED))
    try:
        code = commands.main(prog_name="gpuwatch", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except ConfigError as error:
        click.echo(f"gpuwatch: {error}", err=True)
        sys.exit(EXIT_USAGE)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:  # the last place that can still say it in one line
        if logging.getLogger().isEnabledFor(logging.DEBUG) or os.environ.get(_LEVEL_VARIABLE) == "debug":
            raise
        click.echo(f"gpuwatch: unexpected {type(error).__name__}: {error} ({_LEVEL_VARIABLE}=debug shows where)", err=True)
        sys.exit(EXIT_FAILED)
    sys.exit(code if isinstance(code, int) else EXIT_OK)
