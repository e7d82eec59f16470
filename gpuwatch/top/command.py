"""The command ``gpuwatch top`` and its options."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from gpuwatch.flags import number, with_scenario
from gpuwatch.setting import TOP_CREDENTIALS_VARIABLE
from gpuwatch.top.order import SORTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuwatch.device.wire import Simulation
    from gpuwatch.top.agents import Source

EXIT_OK, EXIT_NO_ANSWER, EXIT_USAGE = 0, 1, 2
_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.5, 300
_FILE: Final = click.Path(path_type=Path, dir_okay=False)
_EPILOG: Final = f"""\b
Keys: q quits, s sorts by the next column, arrows and page keys move.
A user and a password come from --auth-file or ${TOP_CREDENTIALS_VARIABLE}, as
USER:PASSWORD, and go to every --url. With --once or --json the exit code
is 1 when an agent does not answer."""


@click.command(short_help="Show the GPUs of one or many nodes in the terminal.", epilog=_EPILOG)
@click.option("--url", "urls", multiple=True, metavar="URL", help="An agent. Repeatable. [default: http://127.0.0.1:9838]")
@with_scenario
@click.option("--sort", type=click.Choice(SORTS), help="Most first; state: worst first. [default: by node and GPU]")
@click.option("--job", default="", metavar="TEXT", help="Only what a job holds whose name, pod or namespace contains this.")
@click.option("--once", is_flag=True, help="Print one table and leave; so it does where there is no terminal.")
@click.option("--json", "as_json", is_flag=True, help="Print the same as JSON and leave.")
@click.option(
    "--interval",
    type=click.FloatRange(_SHORTEST_SECONDS, _LONGEST_SECONDS),
    default=2.0,
    show_default=True,
    callback=number,
    help="Seconds between two questions to an agent.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(_SHORTEST_SECONDS, _LONGEST_SECONDS),
    default=5.0,
    show_default=True,
    callback=number,
    help="Seconds an agent may take.",
)
@click.option("--ca", type=_FILE, help="Certificates of the authorities to trust. [default: this system's]")
@click.option("--cert", type=_FILE, help="Client certificate to show.")
@click.option("--key", type=_FILE, help="Its key, if it is not in the same file.")
@click.option("--auth-file", type=_FILE, help="File with USER:PASSWORD.")
def top(
    *,
    urls: tuple[str, ...],
    simulation: Simulation | None,
    sort: str | None,
    job: str,
    once: bool,
    as_json: bool,
    interval: float,
    timeout: float,
    ca: Path | None,
    cert: Path | None,
    key: Path | None,
    auth_file: Path | None,
) -> int:
    """Show the GPUs of one or many nodes in the terminal: use, memory, power, heat, verdict and the job that holds each."""
    try:
        from rich.console import Console  # noqa: PLC0415 (of the extra "top")

        from gpuwatch.top.display import Wish, json_of, print_table, run  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "rich":
            raise
        # This interpreter's pip, which knows this gpuwatch: another project has the name in the package index.
        click.echo(f"gpuwatch: top needs rich: {shlex.quote(sys.executable)} -m pip install 'gpuwatch[top]'", err=True)
        return EXIT_USAGE
    from gpuwatch.top.watching import Watching, ask  # noqa: PLC0415

    if urls and simulation is not None:
        raise click.UsageError("--scenario goes without --url: it is a node of its own.")
    console = Console(highlight=False)
    wish = Wish(sort=sort or "", job=job)
    live = not once and not as_json and console.is_terminal and not console.is_dumb_terminal
    with contextlib.ExitStack() as stack:
        if simulation is None:
            sources = _agents(urls, timeout=timeout, ca=ca, cert=cert, key=key, auth_file=auth_file)
        else:
            sources = [stack.enter_context(_simulated(simulation, live=live))]
        watching = Watching(sources, interval_seconds=interval, timeout_seconds=timeout)
        if live:
            run(watching, wish, console)
            return EXIT_OK
        if simulation is not None:
            views = [ask(source) for source in sources]
        else:
            watching.start(once=True)
            views = watching.wait()
    if as_json:
        sys.stdout.buffer.write(json_of(views, wish))
        sys.stdout.flush()
    else:
        print_table(views, wish, console)
    return EXIT_NO_ANSWER if any(view.problem for view in views) else EXIT_OK


@contextlib.contextmanager
def _simulated(simulation: Simulation, *, live: bool) -> Iterator[Source]:
    from gpuwatch.top.simulated import read_once, running  # noqa: PLC0415 (brings the agent with it)

    if live:
        with running(simulation) as source:
            yield source
    else:
        yield read_once(simulation)


def _agents(
    urls: tuple[str, ...], *, timeout: float, ca: Path | None, cert: Path | None, key: Path | None, auth_file: Path | None
) -> list[Source]:
    """The agents at these addresses, each named once.

    Raises:
        click.UsageError: an address or a file cannot be used.
    """
    from gpuwatch.top.agents import (  # noqa: PLC0415
        DEFAULT_URL,
        Access,
        AccessError,
        checked_credentials,
        http_source,
        read_credentials,
        tls_context,
    )

    try:
        if auth_file is not None:
            credentials = read_credentials(auth_file)
        else:
            given = os.environ.get(TOP_CREDENTIALS_VARIABLE, "")
            credentials = checked_credentials(given, TOP_CREDENTIALS_VARIABLE) if given else ""
        context = tls_context(ca=ca, cert=cert, key=key) if ca or cert or key else None
        access = Access(context=context, credentials=credentials, timeout_seconds=timeout)
        return [http_source(url, access) for url in dict.fromkeys(urls or (DEFAULT_URL,))]
    except AccessError as error:
        raise click.UsageError(str(error)) from None
