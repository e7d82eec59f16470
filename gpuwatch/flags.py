"""Flags that several commands share: settings, where to listen, and the simulated node with what is injected into it."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.config import ConfigError, load
from gpuwatch.log import configure_log
from gpuwatch.setting import CONFIG_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuwatch.device.wire import Simulation

_MAX_AT_SECONDS = 1e9
with_injections = click.option(
    "--inject",
    "specs",
    multiple=True,
    metavar="SPEC",
    help="Let a fault happen on the simulated node, such as xid=79,gpu=3. Repeatable; see docs/demo.md.",
)
with_pairs = click.option(
    "--set", "pairs", multiple=True, metavar="KEY=VALUE", help="Any setting, such as read.fast_interval=2s. Repeatable."
)


def with_settings(command: Callable[..., int]) -> Callable[..., int]:
    """Give ``command`` the flags that make up its settings, and pass it the loaded ``settings``."""
    # A command that prints a result and leaves does not tell how it came to it, unless asked.
    defaults = {} if command.__name__ == "run" else {"log.level": "warning"}

    @click.option(
        "--config", type=click.Path(path_type=Path), envvar=CONFIG_VARIABLE, help="YAML file. [default: /etc/gpuwatch/config.yaml]"
    )
    @with_pairs
    @click.option("--node-name", metavar="NAME", help="The node label. [default: NODE_NAME, else the host name]")
    @click.option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")
    @click.option("--log-format", metavar="FORMAT", help="auto, console or json.")
    @functools.wraps(command)
    def with_settings(
        config: Path | None,
        pairs: tuple[str, ...],
        node_name: str | None,
        log_level: str | None,
        log_format: str | None,
        **rest: Any,  # noqa: ANN401 - each command's own options
    ) -> int:
        flags = {"node_name": node_name, "log.level": log_level, "log.format": log_format}
        flags |= {"server.address": rest.pop("address", None), "server.port": rest.pop("port", None)}
        chosen = {key: value for key, value in flags.items() if value is not None} | dict(pair(text) for text in pairs)
        settings = load(config, flags=chosen, defaults=defaults)
        configure_log(settings.log)
        return command(settings, **rest)

    return with_settings


def number(_context: click.Context, _option: click.Parameter, value: float | None) -> float | None:
    """Refuse NaN, which lies in no range and which click lets through."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is no number of seconds.")
    return value


def pair(text: str) -> tuple[str, str]:
    """Key and value of ``--set``.

    Raises:
        ConfigError: there is no equals sign.
    """
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"flag --set: {text!r} is not allowed; expected KEY=VALUE, such as read.fast_interval=2s")
    return key.strip(), value


def with_listener(command: Callable[..., int]) -> Callable[..., int]:
    """Give ``command`` the flags for where to listen; :func:`with_settings` reads them."""
    port = click.option("--port", metavar="PORT", help="TCP port. [default: 9838]")
    default = "127.0.0.1" if command.__name__ == "demo" else "0.0.0.0"  # noqa: S104 - only told; the settings decide
    address = click.option("--address", metavar="ADDRESS", help=f"Address to listen on. [default: {default}]")
    return address(port(command))


def with_scenario(command: Callable[..., int]) -> Callable[..., int]:
    """Give ``command`` a simulated driver on request, passed as ``simulation``."""

    @click.option("--scenario", metavar="NAME", help="Read a simulated node instead (see 'gpuwatch scenarios'), or a scenario file.")
    @click.option(
        "--at",
        "at_seconds",
        type=click.FloatRange(min=0, max=_MAX_AT_SECONDS),
        metavar="SECONDS",
        callback=number,
        help="Moment of the scenario to read: seconds since its start, 0 to 1e9. [default: its first second]",
    )
    @with_injections
    @functools.wraps(command)
    def with_scenario(
        *args: Any,  # noqa: ANN401 - passed on as they are
        scenario: str | None,
        at_seconds: float | None,
        specs: tuple[str, ...],
        **rest: Any,  # noqa: ANN401
    ) -> int:
        if scenario is None and at_seconds is not None:
            raise click.UsageError("--at needs --scenario: a real node has no other moment than now.")
        if scenario is None and specs:
            raise click.UsageError("--inject needs --scenario: nothing is ever injected into a real node.")
        return command(*args, simulation=None if scenario is None else simulation_of(scenario, at_seconds, specs), **rest)

    return with_scenario


def simulation_of(scenario: str, at_seconds: float | None, specs: tuple[str, ...]) -> Simulation:
    """The simulation to run, refused here when there is no such scenario, or a fault cannot be injected into it."""
    from gpuwatch.device.simulated import InjectionError, ScenarioError, inject, load_scenario, scenario_names  # noqa: PLC0415 (slow)
    from gpuwatch.device.wire import Simulation  # noqa: PLC0415

    if scenario not in scenario_names() and not Path(scenario).is_file():
        raise click.UsageError(f"no scenario {scenario!r}; expected a file or one of: {', '.join(scenario_names())}")
    try:
        inject(load_scenario(scenario), specs)
    except ScenarioError as error:
        raise ConfigError("scenario " + " ".join(str(error).split())) from None
    except InjectionError as error:
        raise ConfigError(f"--inject {error}") from None
    return Simulation(scenario=scenario, at_seconds=at_seconds, inject=specs)
