"""Alerts about gpuwatch itself, in the real promtool."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from rules.promtool import Moments, alert, both, fire, moved, prove, say

NODE = 'node="n1"'
TARGET = f'up{{job="gpuwatch", {NODE}}}'
UP = f"gpuwatch_up{{{NODE}}}"
BUILD = f'gpuwatch_build_info{{{NODE}, version="1"}}'
READ = f'gpuwatch_last_read_timestamp_seconds{{{NODE}, tier="fast"}}'

DOWN = alert("GpuwatchDown", "warning", NODE)
WITHOUT = alert("GpuNodeWithoutAgent", "warning", NODE)
UNREADABLE = alert("GpuwatchCannotRead", "critical", NODE)
STALLED = alert("GpuwatchReadStalled", "warning", NODE)
UNTAGGED = alert("GpuwatchAttributionFailing", "warning", f'{NODE}, source="podresources"')


def offers(count: int, resource: str = "nvidia_com_gpu") -> dict[str, str]:
    """What kube-state-metrics says of the node."""
    return {f'kube_node_status_allocatable{{{NODE}, resource="{resource}", unit="integer"}}': f"{count}x90"}


def attribution(values: str) -> dict[str, str]:
    """Whether the kubelet answers."""
    return {f'gpuwatch_attribution_up{{{NODE}, source="podresources"}}': values}


def source(name: str, values: str, reason: str = "") -> dict[str, str]:
    """Whether a source of XIDs listens, and why it does not."""
    up = {f'gpuwatch_xid_source_up{{{NODE}, source="{name}"}}': values}
    return up | ({f'gpuwatch_xid_source_fault{{{NODE}, source="{name}", reason="{reason}"}}': "1x90"} if reason else {})


def deaf(name: str) -> dict[str, str]:
    """The alert on a source."""
    return alert("GpuXidSourceDown", "warning", f'{NODE}, source="{name}"')


CASES: list[tuple[str, dict[str, str], dict[str, str], Moments]] = [
    # What it is; the series; the same just below; what fires when.
    (
        "the agent cannot be scraped",
        {TARGET: "1x5 0x90"},
        {TARGET: "1x5 0x9 1x90", f'up{{job="node-exporter", {NODE}}}': "0x90"},
        {"15m": [], "16m": [DOWN], "90m": [DOWN]},
    ),
    ("no agent", offers(8), offers(0) | offers(64, "cpu"), {"14m": [], "15m": [WITHOUT], "90m": [WITHOUT]}),
    ("no agent beside MIG instances", offers(7, "nvidia_com_mig_1g_10gb"), offers(8) | {BUILD: "1x90"}, {"15m": [WITHOUT]}),
    ("the agent comes", offers(8) | {BUILD: "_x30 1x60"}, {BUILD: "1x90"}, {"29m": [WITHOUT], "30m": []}),
    ("an agent that is there and down", offers(8) | {TARGET: "0x90"}, {TARGET: "1x90"}, {"9m": [], "10m": [DOWN], "90m": [DOWN]}),
    ("nothing can be read", {UP: "1x5 0x90"}, {UP: "1x5 0x9 1x90"}, {"15m": [], "16m": [UNREADABLE], "90m": [UNREADABLE]}),
    (
        "no reads any more",
        {UP: "1x90", READ: "0+60x10 600x90"},
        {UP: "1x90", READ: "-120+60x90", READ.replace("fast", "medium"): "0x90"},
        {"17m": [], "18m": [STALLED], "60m": [STALLED]},
    ),
    ("no reads, which is known", {UP: "0x90", READ: "0x90"}, {READ: "0x90"}, {"9m": [], "10m": [UNREADABLE], "60m": [UNREADABLE]}),
    ("the kubelet is silent", attribution("0x90"), attribution("0x14 1x9 0x14 1x90"), {"14m": [], "15m": [UNTAGGED], "60m": [UNTAGGED]}),
    (
        "one source of two",
        {UP: "1x90"} | source("nvml", "1x90") | source("kernel_log", "0x90", "permission"),
        {UP: "1x90"} | source("nvml", "1x90") | source("kernel_log", "0x14 1x90"),
        {"14m": [], "15m": [deaf("kernel_log")], "60m": [deaf("kernel_log")]},
    ),
    (
        "the only source, which could listen",
        {UP: "1x90"} | source("kernel_log", "0x90", "permission"),
        {UP: "1x90"} | source("kernel_log", "1x90"),
        {"15m": [deaf("kernel_log")]},
    ),
    (
        "the only source, which cannot listen",
        {UP: "1x90"} | source("nvml", "0x90", "not_supported"),
        {UP: "1x90"} | source("nvml", "0x90", "not_supported") | source("kernel_log", "1x90"),
        {"14m": [], "15m": [deaf("any")]},
    ),
    (
        "no source, and one could",
        {UP: "1x90"} | source("nvml", "0x90", "not_supported") | source("kernel_log", "0x90", "missing"),
        {UP: "0x9 1x90"} | source("nvml", "0x9 1x90") | source("kernel_log", "0x9 1x90"),
        {"15m": [deaf("kernel_log")]},
    ),
    (
        "no source, since nothing can be read",
        {UP: "0x90"} | source("nvml", "0x90", "reader_down") | source("kernel_log", "0x90", "reader_down"),
        source("nvml", "0x90", "reader_down"),
        {"15m": [UNREADABLE]},
    ),
]


@pytest.mark.parametrize(("series", "below", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_fires_when_it_should(tmp_path: Path, series: Mapping[str, str], below: Mapping[str, str], expected: Moments) -> None:
    """Not before its time, not below its value, not without its series, and once though two agents tell of it."""
    prove(tmp_path, series, below, expected)


def test_a_new_agent_beside_an_old_one_that_is_gone(tmp_path: Path) -> None:
    """One that answers is enough, for the minutes in which Prometheus still knows both."""
    old, new = both({TARGET: ""})
    silent, answers = both({UP: ""})
    fire(tmp_path, {old: "0x90", new: "1x90", silent: "0x90", answers: "1x90"}, {"20m": [], "90m": []})


def test_targets_without_a_node(tmp_path: Path) -> None:
    """Where scraping names no nodes, each target is judged for itself, and its address is said."""
    series = {'up{job="gpuwatch", instance="10.0.0.9:9838"}': "0x90", 'up{job="gpuwatch", instance="10.0.0.8:9838"}': "1x90"}
    fire(tmp_path, series, {"9m": [], "10m": [alert("GpuwatchDown", "warning", 'instance="10.0.0.9:9838"')]})
    (told,) = say(tmp_path, series, "10m", "GpuwatchDown")
    assert told["description"].startswith("The agent at 10.0.0.9:9838 has not answered")


def test_a_node_that_is_taken_out_of_the_cluster(tmp_path: Path) -> None:
    """Its series end, and so do the alerts: a smaller cluster is no fault."""
    ended = {TARGET: "1x30 stale", UP: "1x30 stale", BUILD: "1x30 stale", **offers(8)}
    ended = {name: "8x30 stale" if name.startswith("kube") else values for name, values in ended.items()}
    failing = moved({TARGET: "0x30 stale", UP: "0x30 stale"}, "n2")
    gone = {"31m": [], "60m": [], "90m": []}
    fire(tmp_path, ended | failing, {"30m": [one | {"node": "n2"} for one in (DOWN, UNREADABLE)]} | gone)


def test_two_clusters_in_one_prometheus(tmp_path: Path) -> None:
    """An agent on a node of that name elsewhere is none here."""
    there = {name.replace("{", '{cluster="b", '): values for name, values in ({BUILD: "1x90"} | offers(8)).items()}
    here = {name.replace("{", '{cluster="a", '): values for name, values in offers(8).items()}
    fire(tmp_path, here | there, {"15m": [alert("GpuNodeWithoutAgent", "warning", f'cluster="a", {NODE}')]})


SAID: list[tuple[str, dict[str, str], str]] = [
    ("GpuwatchDown", {TARGET: "0x90"}, "The agent on n1 has not answered"),
    ("GpuNodeWithoutAgent", offers(8), "n1 offers 8 GPUs"),
    (
        "GpuwatchCannotRead",
        {UP: "0x90", f'gpuwatch_fault{{{NODE}, reason="no_permission"}}': "1x90"},
        "on n1 runs and cannot read any GPU (no_permission).",
    ),
    ("GpuwatchReadStalled", {UP: "1x90", READ: "0x90"}, "The last read on n1 was 1h 0m 0s ago"),
    (
        "GpuwatchAttributionFailing",
        attribution("0x90") | {f'gpuwatch_attribution_fault{{{NODE}, source="podresources", reason="no_socket"}}': "1x90"},
        "Source podresources on n1 does not answer (no_socket):",
    ),
    (
        "GpuXidSourceDown",
        {UP: "1x90"} | source("kernel_log", "0x90", "permission"),
        "On n1 gpuwatch listens not to source kernel_log (permission):",
    ),
    ("GpuXidSourceDown", {UP: "1x90"} | source("nvml", "0x90", "not_supported"), "On n1 gpuwatch listens to no source of XIDs:"),
]


@pytest.mark.parametrize(("name", "series", "words"), SAID, ids=[f"{one[0]} {number}" for number, one in enumerate(SAID)])
def test_says_where_why_and_what_to_do(tmp_path: Path, name: str, series: Mapping[str, str], words: str) -> None:
    """The node, the agent's own reason once, though two agents tell it, and a first thing to do."""
    (told,) = say(tmp_path, both(series), "60m", name)
    assert words in told["description"]
    assert "First: " in told["description"]
    assert told["runbook_url"].endswith(f"/{name}.md")


def test_thresholds_may_be_set(tmp_path: Path) -> None:
    """Another job name and another age count."""
    series = {TARGET.replace("gpuwatch", "gpus"): "0x90", UP: "1x90", READ: "-120+60x90"}
    fire(tmp_path, series, {"5m": [STALLED], "10m": [DOWN, STALLED]}, thresholds={"job": "gpus", "read_age": "119"})
