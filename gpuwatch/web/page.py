"""The page at ``/``: the node's GPUs for a person with a browser, a phone or a screen reader.

One HTML document with nothing loaded from anywhere. Every value is escaped; "n/a" is "not reported", zero is zero. Its one script fetches
the page again and changes what is different; where scripts do not run, the browser reloads the page by itself.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from html import escape
from importlib import resources
from typing import Final

from gpuwatch.curves import Curves
from gpuwatch.device.readings import Fast, Links, Medium, MigInstance
from gpuwatch.snapshot import Gpu, Snapshot
from gpuwatch.web.gauges import Gauges
from gpuwatch.web.health import findings_table, gpu_state, node_state, xids
from gpuwatch.web.holders import Holders, attribution
from gpuwatch.web.markup import NOT_REPORTED, number, of, table, text


def _resource(name: str) -> str:
    return resources.files("gpuwatch.web").joinpath(name).read_text(encoding="utf-8")


def _hash(inline: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()}'"


_STYLE: Final = _resource("page.css")
_SCRIPT: Final = _resource("page.js")
CONTENT_SECURITY_POLICY: Final = (
    f"default-src 'none'; style-src {_hash(_STYLE)}; script-src {_hash(_SCRIPT)}; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Allows the one inline style sheet, the one inline script, and that the script asks this server; nothing else."""
_REFRESH_SECONDS = 15
"""Without scripts; the script looks more often, since it costs the reader nothing."""
_LINKS = (("/metrics", "Prometheus metrics"), ("/api/v1/snapshot", "JSON"), ("/healthz", "liveness"), ("/readyz", "readiness"))


def render_page(snapshot: Snapshot, curves: Curves | None = None) -> str:
    """The whole HTML document. Without ``curves`` bars stand in their place."""
    node = escape(snapshot.node)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f'<noscript><meta http-equiv="refresh" content="{_REFRESH_SECONDS}"></noscript>'
        f'<title>gpuwatch on {node}</title><link rel="icon" href="data:,"><style>{_STYLE}</style><script>{_SCRIPT}</script></head><body>'
        f'<p class="stale" role="alert" hidden></p>{_banner(snapshot)}<header><h1>{node or "unnamed node"}</h1>{_facts(snapshot)}</header>'
        f"<main>{node_state(snapshot)}{''.join(_sections(snapshot, Holders(snapshot), Gauges(curves or Curves())))}</main>"
        f'<footer><nav aria-label="Other forms of this page"><ul>{"".join(_link(path, words) for path, words in _LINKS)}</ul></nav>'
        "</footer></body></html>\n"
    )


def _sections(snapshot: Snapshot, holders: Holders, gauges: Gauges) -> Iterator[str]:
    """What somebody must act on comes first, what explains it last."""
    yield findings_table(snapshot.gpus, holders)
    yield _gpus(snapshot.gpus, holders, gauges)
    yield _mig(snapshot.gpus, holders, gauges)
    yield xids(snapshot)
    yield attribution(snapshot.kubernetes)
    yield _links(snapshot.gpus)


def _banner(snapshot: Snapshot) -> str:
    if not snapshot.simulated:
        return ""
    return '<p class="banner" role="note">Simulated: these GPUs do not exist. Nothing here describes real hardware.</p>'


def _facts(snapshot: Snapshot) -> str:
    facts = (("gpuwatch", snapshot.version), ("driver", snapshot.driver_version), ("CUDA", snapshot.cuda_version))
    return "<p>" + " · ".join(f"{name} {text(value)}" for name, value in facts) + "</p>"


def _gpus(gpus: tuple[Gpu, ...], holders: Holders, gauges: Gauges) -> str:
    if not gpus:
        return '<p class="empty">No GPU has been seen yet.</p>'
    heads = ("Utilisation", "Memory", "Power", "Temperature", "Throttled by", "Processes")
    return table("GPUs", ("GPU", "State", *_held_by(holders), *heads), (_gpu_row(gpu, holders, gauges) for gpu in gpus))


def _held_by(holders: Holders) -> tuple[str, ...]:
    """The heading of the column that only a node in a cluster has."""
    return ("Held by",) if holders.known else ()


def _gpu_row(gpu: Gpu, holders: Holders, gauges: Gauges) -> tuple[str, ...]:
    fast, medium = gpu.fast or Fast(), gpu.medium or Medium()
    uuid, instances = gpu.identity.uuid, len(medium.mig_instances)
    holder = holders.cell_of_parent(uuid, instances) if instances else holders.cell(uuid)
    return (
        f"<b>{gpu.identity.index} · {escape(gpu.identity.model) or 'unknown model'}</b><code>{escape(gpu.identity.uuid)}</code>",
        gpu_state(gpu),
        *((holder,) if holders.known else ()),
        gauges.utilization(gpu),
        gauges.memory(gpu),
        gauges.power(gpu),
        gauges.temperature(gpu),
        _throttle(fast.throttle_reasons),
        text(None if fast.processes is None else str(len(fast.processes))),
    )


def _throttle(reasons: tuple[str, ...] | None) -> str:
    if reasons is None:
        return NOT_REPORTED
    slowing = [reason for reason in reasons if reason != "idle"]
    if slowing:
        return escape(", ".join(slowing).replace("_", " "))
    return "nothing (idle)" if reasons else "nothing"


def _mig(gpus: tuple[Gpu, ...], holders: Holders, gauges: Gauges) -> str:
    rows = [_mig_row(gpu, instance, holders, gauges) for gpu in gpus for instance in (gpu.medium.mig_instances if gpu.medium else ())]
    return table("MIG instances", ("MIG instance", "GPU", *_held_by(holders), "Memory", "SM active"), rows) if rows else ""


def _mig_row(gpu: Gpu, instance: MigInstance, holders: Holders, gauges: Gauges) -> tuple[str, ...]:
    return (
        f"<b>{text(instance.profile)}</b><code>{escape(instance.uuid)}</code>",
        f"{gpu.identity.index} <small>instance {instance.gpu_instance}, compute {instance.compute_instance}</small>",
        *((holders.cell(gpu.identity.uuid, instance.uuid),) if holders.known else ()),
        gauges.instance_memory(gpu, instance),
        gauges.instance_activity(gpu, instance),
    )


def _links(gpus: tuple[Gpu, ...]) -> str:
    heads = ("GPU", "PCIe generation", "PCIe width", "NVLink")
    return table("Links", heads, (_links_row(gpu) for gpu in gpus)) if gpus else ""


def _links_row(gpu: Gpu) -> tuple[str, ...]:
    links = gpu.medium.links if gpu.medium else Links()
    up = f"{sum(links.nvlink_up.values())} of {len(links.nvlink_up)} up" if links.nvlink_up else NOT_REPORTED
    return (
        f"<b>{gpu.identity.index}</b>",
        of(number(links.pcie_generation, ""), number(gpu.identity.pcie_generation_max, "")),
        of(number(links.pcie_width, ""), number(gpu.identity.pcie_width_max, "")),
        up,
    )


def _link(path: str, words: str) -> str:
    return f'<li><a href="{path}">{path}</a> {words}</li>'
