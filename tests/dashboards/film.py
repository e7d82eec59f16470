"""What a Prometheus would have scraped of the demo fleet, minute by minute, made by the daemon's own parts in simulated time.

Written as OpenMetrics with timestamps, one file for each block of two hours, for ``promtool tsdb create-blocks-from openmetrics``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TextIO

import msgspec

from dashboards.demo_fleet import CLUSTER, DEAF_KUBELET, NODES, SECONDS, WITHOUT_AGENT, scenario_of
from gpuwatch.agent import pids_of
from gpuwatch.device.fault_box import FaultBox
from gpuwatch.device.kernel_log import KernelLog
from gpuwatch.kube.objects import SourceState, Views
from gpuwatch.kube.simulated import SimulatedSources
from gpuwatch.metrics.exposition import Exposition
from gpuwatch.snapshot import Snapshot
from gpuwatch.tagging import Tagger
from health.watched import EPOCH, Watched

STEP: Final = 60.0
_BLOCK_SECONDS: Final = 7200
_SERIES: Final = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")


class FilmedNode(Watched):
    """A node with its pods."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._sources: SimulatedSources | None = None
        self._tagger = Tagger(labels_of=lambda _: (), grace_seconds=300.0, max_gap_seconds=2 * STEP)
        super().__init__(scenario_of(name), read_seconds=STEP)
        self._sources = SimulatedSources(self.scenario, lambda: self.t, now=lambda: self.t)
        self._exposition = Exposition(None)

    def merged(self) -> Snapshot:
        """Tagged with what the node's sources say."""
        snapshot = super().merged()
        if self._sources is None or not self.scenario.pods:
            return snapshot
        self._sources.offer_pids(pids_of(snapshot))
        return self._tagger.tag(snapshot, self._views(self._sources.view()), self.t)

    def _start(self) -> bool:
        """A new reader listens anew, behind what the one before it has heard."""
        if not super()._start():
            return False
        heard, self._box = self._log._feed.after, FaultBox()
        self._log = KernelLog(self._load().kernel_log(heard), self._box, started_at=EPOCH, wall=lambda: EPOCH + self.t)
        self._box.set_source("nvml", "")
        return True

    def _views(self, views: Views) -> Views:
        since, fault = DEAF_KUBELET.get(self.name, (SECONDS + 1.0, ""))
        if self.t < since:
            return views
        down = SourceState(up=False, fault=fault, updated_at=since)
        return msgspec.structs.replace(views, allocations=msgspec.structs.replace(views.allocations, state=down))

    def step(self) -> Iterator[str]:
        """Read once; the series of a scrape then, as Prometheus keeps them."""
        self._step()
        body = self._exposition.render(self.snapshot, "", "")[0].decode()
        at, count = f"{EPOCH + self.t:.0f}", 0
        for line in body.splitlines():
            found = _SERIES.match(line)
            if found is not None:
                count += 1
                labels = found[2].replace('node="node-1"', f'node="{self.name}"', 1)
                yield f'{found[1]}{{instance="{self.name}",job="gpuwatch",cluster="{CLUSTER}",{labels}}} {found[3]} {at}\n'
        for name, value in self._of_the_scrape(count).items():
            yield f'{name}{{instance="{self.name}",node="{self.name}",job="gpuwatch",cluster="{CLUSTER}"}} {value:g} {at}\n'
        self.t += STEP

    def _of_the_scrape(self, count: int) -> dict[str, float]:
        """What Prometheus knows of a scrape, and the process of itself: of the size that was measured on a node of eight GPUs."""
        return {
            "up": 1,
            "scrape_samples_scraped": count,
            "scrape_duration_seconds": 0.004 + count / 400_000,
            "process_cpu_seconds_total": self.t * 0.012,
            "process_resident_memory_bytes": 58e6 + 9e3 * count,
            "process_start_time_seconds": EPOCH - 86_400,
        }


def write_film(folder: Path) -> list[Path]:
    """The files, oldest first."""
    nodes = [FilmedNode(name) for name in NODES]
    files: dict[int, TextIO] = {}
    try:
        while nodes[0].t <= SECONDS:
            at = EPOCH + nodes[0].t
            block = int(at // _BLOCK_SECONDS)
            if block not in files:
                files[block] = (folder / f"film-{block}.om").open("w")
            files[block].writelines(_of_the_cluster(f"{at:.0f}"))
            for node in nodes:
                files[block].writelines(node.step())
    finally:
        for file in files.values():
            file.write("# EOF\n")
            file.close()
    return [Path(file.name) for file in files.values()]


def _of_the_cluster(at: str) -> Iterator[str]:
    """What kube-state-metrics says of the nodes."""
    for name in (*NODES, WITHOUT_AGENT):
        yield f'kube_node_status_allocatable{{node="{name}",resource="nvidia_com_gpu",unit="integer",cluster="{CLUSTER}"}} 8 {at}\n'
        yield f'kube_node_spec_unschedulable{{node="{name}",cluster="{CLUSTER}"}} 0 {at}\n'
