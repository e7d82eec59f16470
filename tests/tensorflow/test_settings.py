"""The environment as settings: every value that can be used, and every one that cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.tensorflow.settings import Settings, read_settings

NOWHERE = Path("/nonexistent/namespace")
POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "HOSTNAME": "mnist-worker-0"}
VARIABLES = (
    *("GPUWATCH_TENSORFLOW_PORT", "GPUWATCH_TENSORFLOW_ADDRESS", "GPUWATCH_TEXTFILE_DIRECTORY", "GPUWATCH_AGENT_URL"),
    *("POD_NAMESPACE", "POD_NAME", "CONTAINER_NAME", "HOSTNAME", "KUBERNETES_SERVICE_HOST"),
)


def settings(**environment: str) -> Settings:
    """Of this environment alone."""
    return read_settings(environment, namespace_file=NOWHERE, hostname=lambda: "workstation")


def test_without_a_word_a_workstation_serves_itself_only() -> None:
    """Nothing is opened to a network, nothing is written, nobody is asked."""
    assert settings() == Settings(port=9839, address="127.0.0.1", pod="workstation")


def test_in_a_pod_all_interfaces_are_served() -> None:
    """Prometheus comes from outside of the pod; its name is the host's."""
    assert settings(**POD) == Settings(port=9839, address="", pod="mnist-worker-0")


def test_everything_said() -> None:
    """Each variable arrives; the downward API wins over the name of the host and the mounted namespace."""
    found = settings(
        **POD,
        GPUWATCH_TENSORFLOW_PORT="9900",
        GPUWATCH_TENSORFLOW_ADDRESS="[fd00::7]",
        GPUWATCH_TEXTFILE_DIRECTORY="/metrics",
        POD_NAMESPACE="vision",
        POD_NAME="mnist-chief-0",
        CONTAINER_NAME="tensorflow",
        GPUWATCH_AGENT_URL="https://scrape:secret@10.0.0.7:9838/",
    )
    assert found == Settings(
        port=9900,
        address="fd00::7",
        textfile_directory=Path("/metrics"),
        namespace="vision",
        pod="mnist-chief-0",
        container="tensorflow",
        agent_url="https://scrape:secret@10.0.0.7:9838/",
    )


def test_the_namespace_that_kubernetes_mounts(tmp_path: Path) -> None:
    """Without the downward API it is read from the service account's files; bytes that are no text are none."""
    file = tmp_path / "namespace"
    file.write_text("language\n")
    assert read_settings({}, namespace_file=file).namespace == "language"
    assert read_settings({"POD_NAMESPACE": "vision"}, namespace_file=file).namespace == "vision"
    file.write_bytes(b"\xff\xfe")
    assert read_settings({}, namespace_file=file).namespace == ""


@pytest.mark.parametrize("text", ["0", "off", "OFF", "false", " no "])
def test_the_endpoint_can_be_switched_off(text: str) -> None:
    """That is a wish and no problem."""
    found = settings(GPUWATCH_TENSORFLOW_PORT=text)
    assert (found.port, found.problems) == (None, ())


@pytest.mark.parametrize("text", ["", "  "])
def test_empty_is_not_said(text: str) -> None:
    """A variable that a template left empty is as good as not there."""
    assert settings(**dict.fromkeys(VARIABLES, text)) == settings()


WRONG = {
    "GPUWATCH_TENSORFLOW_PORT": ["98390", "-1", "http", "9839.0", "٣", "1" * 5000],
    "GPUWATCH_TENSORFLOW_ADDRESS": ["localhost", "10.0.0", "0.0.0.0:9839"],
    "GPUWATCH_TEXTFILE_DIRECTORY": ["metrics", "./metrics", "/a\0b"],
    "GPUWATCH_AGENT_URL": ["10.0.0.7:9838", "ftp://x", "http://", "http://x:99999", "http://[::", "http://$(HOST_IP):9838/?x=1"],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in WRONG.items() for text in texts])
def test_what_cannot_be_used_is_told_and_off(name: str, text: str) -> None:
    """One line names the variable and what was expected; the feature is off, and the rest stays as it is."""
    found = settings(**{name: text})
    [problem] = found.problems
    assert problem.startswith(name)
    assert "expected" in problem
    assert "\n" not in problem
    off = {"GPUWATCH_TENSORFLOW_PORT": "port", "GPUWATCH_TEXTFILE_DIRECTORY": "textfile_directory", "GPUWATCH_AGENT_URL": "agent_url"}
    assert found == Settings(pod="workstation", problems=(problem,), **({off[name]: None} if name in off else {}))  # type: ignore[arg-type]


def test_a_password_is_never_told() -> None:
    """What is wrong with the agent's URL is said without the URL."""
    assert "secret" not in str(settings(GPUWATCH_AGENT_URL="htp://user:secret@agent").problems)


@given(st.dictionaries(st.sampled_from(VARIABLES), st.text(max_size=60)))
def test_no_environment_fails(environment: dict[str, str]) -> None:
    """Whatever stands there, there are settings, with a port that can be opened or none."""
    found = settings(**environment)
    assert found.port is None or 0 < found.port < 65536
    assert len(found.problems) <= 4
