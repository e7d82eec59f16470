"""What a Prometheus would have scraped of the demo fleet, minute by minute, made by the daemon's own parts in simulated time.

Written as OpenMetrics with timestamps, one file for each block of two hours, for ``promtool tsdb create-blocks-from openmetrics``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TextIO

from dashboards.demo_fleet import CLUSTER, DEAF_KUBELET, NODES, SECONDS, WITHOUT_AGENT, scenario_of
from dashboards.trainings import trainings
from end_to_end.film import STEP_SECONDS, Node
from gpuwatch.metrics.exposition import Exposition
from health.watched import EPOCH

_BLOCK_SECONDS: Final = 7200
_SERIES: Final = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")


class FilmedNode(Node):
    """A node of the fleet."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(scenario_of(name), broken=DEAF_KUBELET.get(name))
        self._exposition = Exposition(None)

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
        self.t += STEP_SECONDS

    def _of_the_scrape(self, count: int) -> dict[str, float]:
        """What Prometheus tells of a scrape and the process of itself; these numbers are made up."""
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
    nodes, jobs = [FilmedNode(name) for name in NODES], trainings()
    files: dict[int, TextIO] = {}
    try:
        while nodes[0].t <= SECONDS:
            at = EPOCH + nodes[0].t
            block = int(at // _BLOCK_SECONDS)
            if block not in files:
                files[block] = (folder / f"film-{block}.om").open("w")
            files[block].writelines(_of_the_cluster(f"{at:.0f}"))
            for job in jobs:
                files[block].writelines(job.step(nodes[0].t, STEP_SECONDS))
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
