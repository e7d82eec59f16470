"""The reference of all settings, made of the structs of :mod:`gpuwatch.config` and the docstrings of their fields."""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any, Final

from gpuwatch import config, setting
from gpuwatch.chart.config_schema import FROM_ELSEWHERE
from gpuwatch.duration import format_duration
from gpuwatch.setting import Key

_INTRODUCTION: Final = """\
# Settings

<!-- Made by `gpuwatch generate` from gpuwatch/config.py and gpuwatch/settings_page.py: change those, not this page. -->

Settings come from, the later wins:

1. the configuration file, YAML: `--config FILE` or `GPUWATCH_CONFIG`, else `/etc/gpuwatch/config.yaml` if there is one;
2. environment variables: `GPUWATCH_` and the key in capitals, with `__` between section and key: `server.port` is `GPUWATCH_SERVER__PORT`;
3. flags: `--set server.port=9000`, or the shorter `--port`, `--address`, `--node-name`, `--log-level` and `--log-format`.

A mistake (an unknown key, a value out of its range, a broken file) is refused at start with exit code 2 and one line that says where it
was given and what is allowed.

Durations carry their unit: `500ms`, `1s`, `2m`, `1h`, `1m30s`. A bare number is refused, because nobody can tell what unit was meant.

```yaml
server:
  port: 9838
read:
  fast_interval: 1s
log:
  format: json
```

The same in the values of the Helm chart stands below `config`, and becomes the file of every agent:

```yaml
config:
  read:
    fast_interval: 1s
  log:
    format: json
```

## Each setting
"""
_TABLE: Final = "| key | default | allowed | meaning |\n|---|---|---|---|\n"
_PLACES: Final = """
## Where each is set

| key | environment variable | value of the chart |
|---|---|---|
"""
_END: Final = """
The chart sets three of them itself where `config` does not: it reads the kernel log only with `kernelLog.enabled`, and maps processes only
where it sees them.

Kubernetes gives each pod variables for the Services of its namespace (`GPUWATCH_SERVICE_HOST`, `GPUWATCH_PORT=tcp://…`). They are told
apart from settings and ignored.

## Exit codes

0 done; 1 no GPU could be read (`once`), a GPU could not be read (`check`), or an unexpected error; 2 the command line or the
configuration is wrong; 3 cannot listen (the port is taken, a certificate cannot be loaded); 4 all GPUs can be read, and the verdict on one
is failed (`check`).
"""
_FROM_VALUES: Final = {
    "node_name": "none: each pod knows its node",
    "server.web_config_file": "`web.tls`, `web.basicAuth` or `web.existingSecret`",
}
_BESIDE: Final = {
    "read.kernel_log": "`kernelLog.enabled`",
    "kubernetes.processes": "`hostPID` or `hostProc`",
    "kubernetes.proc_root": "`hostProc`",
}
"""Values from which the chart makes what ``config`` does not say."""
_DEFAULTS: Final = {"node_name": "`NODE_NAME` of the environment, else the host name"}


def settings_page() -> str:
    """Return the reference of all settings, in Markdown."""
    keys = setting.keys_of(config.Settings)
    texts = _docstrings()
    groups: dict[str, list[Key]] = {}
    for path, key in keys.items():
        groups.setdefault(path.rpartition(".")[0], []).append(key)
    tables = [_table(section, group, texts) for section, group in groups.items()]
    return _INTRODUCTION + "".join(tables) + _PLACES + "".join(_place(key) for key in keys.values()) + _END


def _table(section: str, keys: list[Key], texts: dict[tuple[str, str], str]) -> str:
    struct = _struct(section)
    heading = f"\n### {section}\n\n{_markdown(inspect.getdoc(struct) or '')}\n" if section else ""
    default = struct()
    rows = "".join(_row(key, getattr(default, key.attribute), texts[struct.__name__, key.attribute]) for key in keys)
    return f"{heading}\n{_TABLE}{rows}"


def _row(key: Key, default: object, text: str) -> str:
    cells = (f"`{key.path}`", _default(key, default), _allowed(key), text)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _default(key: Key, value: Any) -> str:  # noqa: ANN401 - of any setting
    if key.path in _DEFAULTS:
        return _DEFAULTS[key.path]
    match key.kind:
        case "duration":
            return f"`{format_duration(value)}`"
        case "switch":
            return f"`{str(value).lower()}`"
    return f"`{value}`" if value or value == 0 else "none"


def _allowed(key: Key) -> str:
    match key.kind:
        case "duration":
            return f"{format_duration(key.low or 0)} to {format_duration(key.high or 0)}"
        case "integer":
            return f"{key.low:.0f} to {key.high:.0f}"
        case "switch":
            return "true, false"
        case "choice":
            return ", ".join(key.choices)
        case "labels":
            return "a mapping or a list"
        case "mapping":
            return "a mapping"
    return "text" if key.low else "text, or empty"


def _place(key: Key) -> str:
    place = _FROM_VALUES[key.path] if key.path in FROM_ELSEWHERE else f"`config.{key.path}`"
    if key.path in _BESIDE:
        place += f", else from {_BESIDE[key.path]}"
    return f"| `{key.path}` | `{setting.variable_of(key.path)}` | {place} |\n"


def _struct(section: str) -> Any:  # noqa: ANN401 - structs have no common type
    return type(getattr(config.Settings(), section)) if section else config.Settings


def _docstrings() -> dict[tuple[str, str], str]:
    """The text under each field, by class and field. Python keeps none of them, so they are read from the source."""
    texts = {}
    for struct in ast.parse(inspect.getsource(config)).body:
        if isinstance(struct, ast.ClassDef):
            for field, text in zip(struct.body, struct.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
                    texts[struct.name, field.target.id] = _markdown(ast.literal_eval(text.value))
    return texts


def _markdown(text: str) -> str:
    """One line; code is marked with one sign instead of two."""
    return re.sub(r"\s+", " ", text).strip().replace("``", "`")
