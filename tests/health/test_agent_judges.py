"""The whole agent over a simulated node: verdicts in its snapshots, and the operator's word about XIDs."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwatch.agent import once
from gpuwatch.config import ConfigError, load
from gpuwatch.device.wire import Simulation
from gpuwatch.health.xid import policy_of
from gpuwatch.wiring import xid_overrides

NOTHING = Path("/dev/null")


def test_the_agent_judges_every_gpu() -> None:
    """One read is enough for what the driver says as a fact."""
    snapshot = once(load(NOTHING, environment={}), Simulation(scenario="ecc-storm", at_seconds=100.0))
    found = [(gpu.verdict.state, gpu.verdict.action) if gpu.verdict else None for gpu in snapshot.gpus]
    assert found == [("ok", "none"), ("ok", "none"), ("failed", "reset_gpu"), ("ok", "none")]


def test_the_operators_word_counts_in_verdict_and_counters() -> None:
    """An override is in the verdict's reason and in the label of the counter."""
    settings = load(NOTHING, environment={"GPUWATCH_HEALTH__XID_OVERRIDES": "{48: {severity: info, action: watch}}"})
    gpu = once(settings, Simulation(scenario="ecc-storm", at_seconds=100.0)).gpus[2]
    assert gpu.verdict is not None
    assert next(reason.severity for reason in gpu.verdict.reasons if reason.code == "xid_48") == "info"
    assert next(count.severity for count in gpu.xids if count.xid == "48") == "info"


def test_overrides_in_a_file(tmp_path: Path) -> None:
    """A mapping of numbers; an empty one changes nothing."""
    path = tmp_path / "config.yaml"
    path.write_text("health:\n  xid_overrides:\n    31: {severity: ticket}\n    999: {action: inspect}\n")
    own = xid_overrides(load(path, environment={}))
    assert policy_of(31, own).severity == "ticket"
    assert policy_of(999, own).action == "inspect"
    path.write_text("health:\n  xid_overrides:\n")
    assert xid_overrides(load(path, environment={})) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[31]", "expected a mapping"),
        ("{31: {severity: critical}}", "expected one of page, ticket, info"),
        ("{31: page}", "expected severity, action or both"),
        ("{abc: {severity: page}}", "is no XID"),
    ],
)
def test_wrong_overrides_are_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    """At the start, with the key and what is allowed."""
    path = tmp_path / "config.yaml"
    path.write_text(f"health:\n  xid_overrides: {text}\n")
    with pytest.raises(ConfigError, match=message) as caught:
        xid_overrides(load(path, environment={}))
    assert "health.xid_overrides" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_broken_variable_is_refused() -> None:
    """Text that is no mapping."""
    with pytest.raises(ConfigError, match=r"health\.xid_overrides.*expected a mapping"):
        load(NOTHING, environment={"GPUWATCH_HEALTH__XID_OVERRIDES": "{31"})
