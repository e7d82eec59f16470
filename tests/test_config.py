"""Settings: sources and their order, and one clear line for each mistake."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch import setting
from gpuwatch.config import ConfigError, Settings, load
from gpuwatch.duration import format_duration, parse_duration
from gpuwatch.yamlfile import YamlFileError, parse_mapping

ROOT = Path(__file__).parents[1]
KEYS = setting.keys_of(Settings)
NOTHING = Path("/dev/null")


def refusal(directory: Path, text: str | bytes) -> str:
    """The message with which a configuration file of this content is refused."""
    file = directory / "config.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        load(file, environment={})
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert str(file) in message
    return message


def test_defaults() -> None:
    """Without any source the documented defaults hold, with durations in seconds."""
    settings = load(NOTHING, environment={})
    assert settings == Settings()
    assert settings.node_name == socket.gethostname()
    assert settings.read.fast_interval_seconds == 1.0
    assert settings.liveness.unreadable_after_seconds == 300.0
    assert settings.server.port == 9838


def test_every_default_is_allowed() -> None:
    """Each default lies in its own range, so that writing it out changes nothing."""
    for path, key in KEYS.items():
        section, _, _ = path.rpartition(".")
        default = getattr(getattr(Settings(), section) if section else Settings(), key.attribute)
        text = format_duration(default) if key.kind == "duration" else str(default).lower() if key.kind == "switch" else str(default)
        assert setting.value_of(key, setting.Given(value=text, source="test", is_text=True)) == default


def test_later_source_wins(tmp_path: Path) -> None:
    """Flags win over the environment, the environment over the file, and each source sets only what it names."""
    file = tmp_path / "config.yaml"
    file.write_text("server: {port: 1001, address: '::1'}\nread: {fast_interval: 2s}\nlog:\n", encoding="utf-8")
    environment = {"GPUWATCH_SERVER__PORT": "1002", "GPUWATCH_READ__FAST_INTERVAL": "3s", "GPUWATCH_READ__PCIE_THROUGHPUT": "false"}
    settings = load(file, environment=environment, flags={"server.port": "1003"})
    assert settings.server.port == 1003
    assert settings.server.address == "::1"
    assert settings.read.fast_interval_seconds == 3.0
    assert settings.read.pcie_throughput is False


def test_node_name_sources(tmp_path: Path) -> None:
    """NODE_NAME replaces the host name, and every explicit setting replaces NODE_NAME; an empty one counts as unset."""
    file = tmp_path / "config.yaml"
    file.write_text("node_name: from-file", encoding="utf-8")
    assert load(NOTHING, environment={"NODE_NAME": "worker-1"}).node_name == "worker-1"
    assert load(NOTHING, environment={"NODE_NAME": ""}).node_name == socket.gethostname()
    assert load(file, environment={"NODE_NAME": "worker-1"}).node_name == "from-file"
    assert load(NOTHING, environment={"NODE_NAME": "worker-1", "GPUWATCH_NODE_NAME": "mine"}).node_name == "mine"


@pytest.mark.parametrize(
    "value", ["3", "0", "-1", "'3'", "0s", "-1s", "1e3s", "100ms", "61s", "2 s", "1y", "''", "null", "[1s]", "yes", "s"]
)
def test_interval_needs_unit_and_range(tmp_path: Path, value: str) -> None:
    """An interval of 3 (meant as ms?), 0, -1 or anything but a duration in range is refused with key, value and range."""
    message = refusal(tmp_path, f"read: {{fast_interval: {value}}}")
    assert "read.fast_interval" in message
    assert "from 200ms to 1m" in message


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("read: {fast_intervall: 1s}", ["read.fast_intervall", "did you mean read.fast_interval?"]),
        ("fast_interval: 1s", ["'fast_interval'", "did you mean read.fast_interval?"]),
        ("serve: {port: 1}", ["unknown key 'serve'", "expected one of"]),
        ("zzz: 1", ["unknown key 'zzz'", "expected one of node_name, server.address"]),
        ("5: 1", ["unknown key '5'"]),
        ("server: 9838", ["server: 9838", "expected a section", "port"]),
        ("server: {port: '9838'}", ["server.port: '9838'", "a whole number from 1 to 65535"]),
        ("server: {port: 0}", ["server.port: 0", "from 1 to 65535"]),
        ("server: {port: 65536}", ["server.port: 65536"]),
        ("server: {port: 98.38}", ["server.port: 98.38"]),
        ("server: {port: true}", ["server.port: True"]),
        ("server: {port: 0x" + "f" * 9000 + "}", ["server.port", "a huge int"]),
        ("server: {port: }", ["server.port: None"]),
        ("server: {address: ''}", ["server.address: ''", "text of 1 to 253"]),
        ('server: {address: "a\\nb"}', ["server.address: 'a\\nb'", "printable"]),
        ("server: {probes_without_credentials: 'true'}", ["probes_without_credentials: 'true'", "expected true or false"]),
        ("node_name: 12", ["node_name: 12", "expected text"]),
        ("log: {level: INFO}", ["log.level: 'INFO'", "one of debug, info, warning, error"]),
        ("log: {format: on}", ["log.format: True", "one of auto, console, json"]),
        ("read: {fast_interval: 20s}", ["read.medium_interval is 10s", "read.fast_interval is 20s", "not to be shorter"]),
        ("read: {stall_after: 2m}", ["reader.hang_deadline is 1m", "read.stall_after is 2m"]),
        ("read: {medium_interval: 5m, static_interval: 1m}", ["read.static_interval is 1m"]),
        (
            "kubernetes: {events: true, api_server: never}",
            ["kubernetes.events is true", "kubernetes.api_server is never", "auto or always"],
        ),
        ("kubernetes: {node_condition: true, attribution: never}", ["node_condition is true", "kubernetes.attribution is never"]),
        ("kubernetes: {events: 1}", ["kubernetes.events: 1", "expected true or false"]),
        ("server: {port: 1, port: 2}", ["'port' is given twice", "line 1, column 19"]),
        ("log:\n  level: info\nlog:\n", ["'log' is given twice", "line 3"]),
        ("server: {port: 1", ["broken YAML at line 1"]),
        ("a: b: c", ["broken YAML at line 1, column 5"]),
        ("\tserver:", ["broken YAML at line 1"]),
        ("a: &x [1]\nb: *x", ["aliases", "line 2"]),
        ("- a", ["list at its top"]),
        ("hello", ["str at its top"]),
        ("--- {}\n--- {}", ["broken YAML"]),
        ("node_name: 2026-99-99", ["put it in quotes"]),
        ("node_name: !!python/object:os.system x", ["broken YAML"]),
        ("[" * 5000, ["nested too deeply"]),
        (b"\xff\xfe\x00", ["not UTF-8"]),
        (b"a: \x00", ["broken YAML"]),
        (b"#" * (1 << 21), ["larger than"]),
    ],
)
def test_refused_file(tmp_path: Path, text: str | bytes, parts: list[str]) -> None:
    """Each mistake in a file gives one line that names the file, the place or key, the value and what is allowed."""
    message = refusal(tmp_path, text)
    for part in parts:
        assert part in message


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "{}", "server:\n", "\ufeffserver: {}"])
def test_empty_file(tmp_path: Path, text: str) -> None:
    """An empty file, an empty section and a byte order mark are fine."""
    file = tmp_path / "config.yaml"
    file.write_text(text, encoding="utf-8")
    assert load(file, environment={}) == Settings()


def test_unusable_files(tmp_path: Path) -> None:
    """A missing named file, a directory and a file behind a file are refused by name."""
    (tmp_path / "file").touch()
    for path, part in (
        (tmp_path, "is a directory"),
        (tmp_path / "none.yaml", "No such file"),
        (tmp_path / "file" / "x", "Not a directory"),
    ):
        with pytest.raises(ConfigError, match=re.escape(str(path))) as caught:
            load(path, environment={})
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "parts"),
    [
        ("GPUWATCH_SERVER__PRT", "1", ["no such setting", "did you mean GPUWATCH_SERVER__PORT?"]),
        ("GPUWATCH_SERVER_PORT", "9000", ["no such setting", "did you mean GPUWATCH_SERVER__PORT?"]),
        ("GPUWATCH_SERVER__PORT", "http", ["GPUWATCH_SERVER__PORT", "server.port: 'http'", "1 to 65535"]),
        ("GPUWATCH_SERVER__PORT", "", ["server.port: ''"]),
        ("GPUWATCH_SERVER__PORT", "9" * 5000, ["server.port"]),
        ("GPUWATCH_READ__FAST_INTERVAL", "3", ["read.fast_interval: '3'", "from 200ms to 1m"]),
        ("GPUWATCH_READ__PCIE_THROUGHPUT", "maybe", ["true or false"]),
        ("NODE_NAME", "x" * 300, ["NODE_NAME", "1 to 253"]),
    ],
)
def test_refused_variable(name: str, value: str, parts: list[str]) -> None:
    """A wrong variable is refused by its name, with a hint where one is likely."""
    with pytest.raises(ConfigError) as caught:
        load(NOTHING, environment={name: value})
    for part in ["environment variable " + name if name == "NODE_NAME" else name, *parts]:
        assert part in str(caught.value)


def test_service_variables_are_no_settings() -> None:
    """A Kubernetes Service named gpuwatch (or gpuwatch-server) beside the agent does not stop it."""
    links = {
        "GPUWATCH_SERVICE_HOST": "10.0.0.1",
        "GPUWATCH_SERVICE_PORT": "9838",
        "GPUWATCH_SERVICE_PORT_METRICS": "9838",
        "GPUWATCH_PORT": "tcp://10.0.0.1:9838",
        "GPUWATCH_PORT_9838_TCP": "tcp://10.0.0.1:9838",
        "GPUWATCH_PORT_9838_TCP_PROTO": "tcp",
        "GPUWATCH_PORT_9838_TCP_PORT": "9838",
        "GPUWATCH_PORT_9838_TCP_ADDR": "10.0.0.1",
        "GPUWATCH_SERVER_SERVICE_HOST": "10.0.0.1",
        "GPUWATCH_SERVER_PORT": "tcp://10.0.0.1:9838",
    }
    assert load(NOTHING, environment=links | {"GPUWATCH_CONFIG": "x", "HOME": "/"}) == Settings()


def test_refused_flag() -> None:
    """A flag for no setting, or with a wrong value, is refused like any other source."""
    with pytest.raises(ConfigError, match=r"flag: unknown key 'server\.prt'; did you mean server\.port\?"):
        load(NOTHING, environment={}, flags={"server.prt": "1"})
    with pytest.raises(ConfigError, match=r"flag: server\.port: '70000' is not allowed; expected a whole number from 1 to 65535"):
        load(NOTHING, environment={}, flags={"server.port": "70000"})


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(["1s", "5m", "info", "1h"])
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=5
)
_SECTIONS = st.dictionaries(
    st.sampled_from(sorted({path.partition(".")[0] for path in KEYS})) | st.text(max_size=8),
    _VALUES | st.dictionaries(st.sampled_from(sorted({path.rpartition(".")[2] for path in KEYS})), _VALUES, max_size=4),
    max_size=4,
)


@given(
    st.binary(max_size=80) | st.text(max_size=80).map(lambda text: text.encode(errors="surrogatepass")) | _SECTIONS.map(msgspec.yaml.encode)
)
def test_any_file_gives_settings_or_one_line(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Whatever the file holds, the answer is settings in their ranges or one line."""
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_bytes(content)
    try:
        settings = load(file, environment={})
    except ConfigError as error:
        assert len(str(error).splitlines()) == 1
    else:
        assert msgspec.convert(msgspec.to_builtins(settings), Settings) == settings


@given(st.text(alphabet="{}[]:,&*!|>'\"%@`#-? \n\tab1", max_size=60))
def test_any_yaml_punctuation_gives_mapping_or_one_line(text: str) -> None:
    """Whatever a text of YAML's own punctuation means, the reader returns a mapping or one line."""
    try:
        assert isinstance(parse_mapping(text), dict)
    except YamlFileError as error:
        assert len(str(error).splitlines()) == 1


@given(st.dictionaries(st.sampled_from(sorted(KEYS)), st.text(max_size=12) | st.sampled_from(["1s", "12", "true", "info"])))
def test_any_variable_gives_settings_or_one_line(values: dict[str, str]) -> None:
    """Whatever the variables hold, the answer is settings or one line."""
    try:
        load(NOTHING, environment={setting.PREFIX + path.upper().replace(".", "__"): value for path, value in values.items()})
    except ConfigError as error:
        assert len(str(error).splitlines()) == 1


@given(st.integers(min_value=0, max_value=10**9))
def test_durations_round_trip(milliseconds: int) -> None:
    """A duration written by us reads back as itself, to the millisecond."""
    assert round(parse_duration(format_duration(milliseconds / 1000)) * 1000) == milliseconds


def test_durations_add_up() -> None:
    """Several parts add up, and fractions are allowed."""
    assert parse_duration("1m30s") == 90.0
    assert parse_duration("1.5h") == 5400.0


def test_documentation_is_in_step() -> None:
    """docs/configuration.md lists exactly the settings that exist, in order, with their defaults and ranges."""
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    rows = {row[0]: row for row in re.findall(r"^\| `([a-z_.]+)` \| (.*?) \| (.*?) \| .* \|$", text, flags=re.MULTILINE)}
    assert list(rows) == list(KEYS)
    for path, (_, default, allowed) in rows.items():
        key = KEYS[path]
        section, _, _ = path.rpartition(".")
        value = getattr(getattr(Settings(), section) if section else Settings(), key.attribute)
        if key.kind == "duration":
            assert parse_duration(default.strip("`")) == value
            assert [parse_duration(part) for part in allowed.split(" to ")] == [key.low, key.high]
        elif key.kind == "integer":
            assert (int(default.strip("`")), allowed) == (value, f"{key.low} to {key.high}")
        elif key.kind == "choice":
            assert (default, tuple(allowed.split(", "))) == (f"`{value}`", key.choices)
        elif key.kind == "switch":
            assert default == f"`{str(value).lower()}`"
