"""One setting: where its value was given, and whether that value is allowed.

The keys come from the structs of :mod:`gpuwatch.config`: their names, types and ``msgspec.Meta`` bounds are the only description.
"""

from __future__ import annotations

import difflib
import re
import typing
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.duration import format_duration, parse_duration
from gpuwatch.yamlfile import YamlFileError, parse_mapping

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PREFIX = "GPUWATCH_"
CONFIG_VARIABLE = "GPUWATCH_CONFIG"
TOP_CREDENTIALS_VARIABLE = "GPUWATCH_TOP_AUTH"
"""Read by ``gpuwatch top`` alone; no setting."""
"""Names the configuration file; no setting itself."""

_DURATION_ENDING = "_seconds"
_SHOWN_LENGTH = 60
# Kubernetes gives each pod such variables for every Service of its namespace. A Service named gpuwatch must not stop the agent.
_SERVICE_LINK = re.compile(r"GPUWATCH_(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)")
_SERVICE_ADDRESS = re.compile(r"(?:tcp|udp|sctp)://", re.IGNORECASE)


class ConfigError(Exception):
    """A setting is refused. The message is one line: source, key, value, what is allowed."""


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that exists.

    ``kind`` is ``duration``, ``integer``, ``switch``, ``choice``, ``labels``, ``mapping`` or ``text``; bounds are inclusive.
    """

    path: str
    attribute: str
    kind: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """A value somebody wrote, not yet checked. ``is_text``: it comes from where there is only text (environment, flags)."""

    value: object
    source: str
    is_text: bool = False


def keys_of(struct: type[msgspec.Struct], prefix: str = "") -> dict[str, Key]:
    """Return every key of ``struct`` and of the structs in it, by dotted path."""
    keys: dict[str, Key] = {}
    for attribute, annotation in typing.get_type_hints(struct, include_extras=True).items():
        path = prefix + attribute.removesuffix(_DURATION_ENDING)
        if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
            keys |= keys_of(annotation, path + ".")
        else:
            keys[path] = _key(path, attribute, annotation)
    return keys


def _key(path: str, attribute: str, annotation: Any) -> Key:  # noqa: ANN401 - annotations have no common type
    bare, *metas = typing.get_args(annotation) if typing.get_origin(annotation) is typing.Annotated else (annotation,)
    meta = next((meta for meta in metas if isinstance(meta, msgspec.Meta)), msgspec.Meta())
    if typing.get_origin(bare) is typing.Literal:
        return Key(path=path, attribute=attribute, kind="choice", choices=typing.get_args(bare))
    if bare is object:
        return Key(path=path, attribute=attribute, kind="labels")
    if bare is dict or typing.get_origin(bare) is dict:
        return Key(path=path, attribute=attribute, kind="mapping")
    if bare is str:
        return Key(path=path, attribute=attribute, kind="text", low=meta.min_length, high=meta.max_length)
    kind = {float: "duration", int: "integer", bool: "switch"}[bare]
    return Key(path=path, attribute=attribute, kind=kind, low=meta.ge, high=meta.le)


def given_in_mapping(mapping: Mapping[Any, Any], keys: Mapping[str, Key], *, source: str) -> dict[str, Given]:
    """Return what a file's mapping sets; a section without content counts as empty.

    Raises:
        ConfigError: An unknown key, or a section that is no mapping.
    """
    given: dict[str, Given] = {}
    for path, value in _flattened(mapping, keys, source=source):
        if path not in keys:
            raise ConfigError(f"{source}: {_unknown(path, keys)}")
        given[path] = Given(value=value, source=source)
    return given


def _flattened(mapping: Mapping[Any, Any], keys: Mapping[str, Key], *, source: str) -> Iterable[tuple[str, object]]:
    sections = _sections(keys)
    for name, value in mapping.items():
        if name not in sections:
            yield str(name), value
        elif isinstance(value, dict):
            yield from ((f"{name}.{inner}", item) for inner, item in value.items())
        elif value is not None:
            allowed = ", ".join(path.partition(".")[2] for path in keys if path.startswith(f"{name}."))
            raise ConfigError(f"{source}: {name}: {shown(value)} is not allowed; expected a section with keys of: {allowed}")


def given_in_environment(environment: Mapping[str, str], keys: Mapping[str, Key]) -> dict[str, Given]:
    """Return what the variables ``GPUWATCH_*`` set, except those that Kubernetes makes for Services.

    Raises:
        ConfigError: A variable that names no setting.
    """
    names = {variable_of(path): path for path in keys}
    given: dict[str, Given] = {}
    for name, value in environment.items():
        if not name.startswith(PREFIX) or name in (CONFIG_VARIABLE, TOP_CREDENTIALS_VARIABLE):
            continue
        if name in names:
            given[names[name]] = Given(value=value, source=f"environment variable {name}", is_text=True)
        elif not _is_service_link(name, value):
            raise ConfigError(f"environment variable {shown(name)}: no such setting{_nearest(name, names)}")
    return given


def variable_of(path: str) -> str:
    """Return the environment variable of a dotted key."""
    return PREFIX + path.upper().replace(".", "__")


def _is_service_link(name: str, value: str) -> bool:
    return bool(_SERVICE_LINK.fullmatch(name) or (name.endswith("_PORT") and _SERVICE_ADDRESS.match(value)))


def given_in_flags(flags: Mapping[str, str], keys: Mapping[str, Key]) -> dict[str, Given]:
    """Return what flags set, by dotted key.

    Raises:
        ConfigError: A flag names no setting.
    """
    for path in flags:
        if path not in keys:
            raise ConfigError(f"flag: {_unknown(path, keys)}")
    return {path: Given(value=value, source="flag", is_text=True) for path, value in flags.items()}


def value_of(key: Key, given: Given) -> object:
    """Return the value to use for ``key``.

    Raises:
        ConfigError: Wrong type or out of range.
    """
    value = _converted(key, given)
    size: object = len(value) if isinstance(value, str) and key.kind == "text" else value
    in_range = not isinstance(size, (int, float)) or ((key.low is None or size >= key.low) and (key.high is None or size <= key.high))
    if value is None or not in_range or (isinstance(value, str) and not value.isprintable()):
        raise ConfigError(f"{given.source}: {key.path}: {shown(given.value)} is not allowed; expected {allowed(key)}")
    return value


def _converted(key: Key, given: Given) -> object:
    """The given value in the type of ``key``, or ``None`` when it has another type."""
    value = given.value
    match key.kind:
        case "duration" if isinstance(value, str):
            try:
                return parse_duration(value)
            except ValueError:
                return None
        case "integer" if given.is_text and isinstance(value, str):
            return int(value) if re.fullmatch(r"-?[0-9]{1,18}", value) else None
        case "integer":
            return value if isinstance(value, int) and not isinstance(value, bool) else None
        case "switch" if given.is_text:
            return {"true": True, "false": False}.get(str(value).lower())
        case "switch":
            return value if isinstance(value, bool) else None
        case "choice":
            return value if value in key.choices else None
        case "text":
            return value if isinstance(value, str) else None
        case "labels":
            return value if isinstance(value, (str, list, dict)) else None
    return _mapping(value, is_text=given.is_text) if key.kind == "mapping" else None


def _mapping(value: object, *, is_text: bool) -> dict[Any, Any] | None:
    """A mapping, or the YAML of one where there is only text."""
    if is_text and isinstance(value, str):
        try:
            return parse_mapping(value)
        except YamlFileError:
            return None
    return {} if value is None else value if isinstance(value, dict) else None


def allowed(key: Key) -> str:
    """Return what ``key`` accepts, in words."""
    match key.kind:
        case "duration":
            low, high = format_duration(key.low or 0), format_duration(key.high or 0)
            return f'a duration with a unit (ms, s, m or h) from {low} to {high}, such as "{high}"'
        case "integer":
            return f"a whole number from {key.low:.0f} to {key.high:.0f}"
        case "switch":
            return "true or false"
        case "choice":
            return "one of " + ", ".join(key.choices)
        case "labels":
            return "a mapping of pod label to metric label, a list of pod labels, or either as text (a=b,c)"
        case "mapping":
            return "a mapping, such as {key: value}"
    return f"text of {key.low or 0:.0f} to {key.high:.0f} printable characters" if key.high else "printable text"


def _unknown(path: str, keys: Mapping[str, Key]) -> str:
    return f"unknown key {shown(path)}{_nearest(path, keys)}"


def _nearest(name: str, names: Iterable[str]) -> str:
    """A hint: the most alike of ``names`` (also by its last word alone), or all of them."""
    known = list(names)
    last_words = {known_name.rpartition(".")[2]: known_name for known_name in known}
    alike = difflib.get_close_matches(name[:_SHOWN_LENGTH], known, n=1, cutoff=0.7)
    alike = alike or [last_words[word] for word in difflib.get_close_matches(name[:_SHOWN_LENGTH], last_words, n=1, cutoff=0.7)]
    return f"; did you mean {alike[0]}?" if alike else f"; expected one of {', '.join(known)}"


def _sections(keys: Mapping[str, Key]) -> set[str]:
    return {path.partition(".")[0] for path in keys if "." in path}


def shown(value: object) -> str:
    """Return ``value`` for a one-line message: quoted when it is text, with control characters escaped, shortened."""
    try:
        text = repr(value)
    except ValueError:  # Python does not print whole numbers of more than 4300 digits
        text = f"a huge {type(value).__name__}"
    return text if len(text) <= _SHOWN_LENGTH else text[: _SHOWN_LENGTH - 1] + "…"
