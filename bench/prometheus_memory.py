"""What a Prometheus needs for many nodes: its memory a series, from a real one that scrapes copies of one simulated node.

``python bench/prometheus_memory.py NODES [SCENARIO]``. Each copy has a name and UUIDs of its own. The figure is that of a young head;
samples are added to it over two hours.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from prometheus_client import CollectorRegistry
from table import show

from gpuwatch import agent
from gpuwatch.config import LogSettings, load
from gpuwatch.device.wire import Simulation
from gpuwatch.log import configure_log
from gpuwatch.metrics.exposition import Exposition

SCRAPES = 12
INTERVAL_SECONDS = 5


def main() -> None:
    """Measure and print."""
    nodes, scenario = int(sys.argv[1]), (sys.argv[2:] or ["training"])[0]
    configure_log(LogSettings(level="warning"))
    snapshot = agent.once(load(None, environment={"NODE_NAME": "node-0000"}), Simulation(scenario=scenario, at_seconds=100.0))
    body, _ = Exposition(CollectorRegistry()).render(snapshot, "", "")
    text = body.decode()
    server = serve(text)
    rows = [(count, *measure(server.server_address[1], count)) for count in (1, nodes)]
    (_, least_series, least_bytes), (_, series, resident) = rows
    server.shutdown()
    shown = [(count, f"{many:,.0f}", f"{held / 2**20:.0f}") for count, many, held in rows]
    show(f"Prometheus, {SCRAPES} scrapes of copies of the node {scenario}", ("nodes", "series", "resident MiB"), shown)
    print(f"{(resident - least_bytes) / (series - least_series) / 1024:.1f} KiB for each further series")


def serve(text: str) -> ThreadingHTTPServer:
    """The copies, by path: ``/17/metrics``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            number = self.path.split("/")[1]
            copy = re.sub(r"GPU-([0-9a-f]{8})", rf"GPU-{int(number):04x}\1", text.replace("node-0000", f"node-{number:0>4}"))
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(copy.encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def measure(port: int, nodes: int) -> tuple[float, float]:
    """Series in the head and resident bytes after the scrapes."""
    targets = "".join(
        f"  - {{targets: ['127.0.0.1:{port}'], labels: {{__metrics_path__: /{number}/metrics, instance: node-{number}}}}}\n"
        for number in range(nodes)
    )
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "prometheus.yml"
        config.write_text(
            f"global: {{scrape_interval: {INTERVAL_SECONDS}s}}\nscrape_configs:\n- job_name: gpuwatch\n  honor_labels: true\n"
            f"  static_configs:\n{targets}"
        )
        own = port + 1 if port < 65535 else port - 1
        arguments = (f"--config.file={config}", f"--storage.tsdb.path={directory}/data", f"--web.listen-address=127.0.0.1:{own}")
        with subprocess.Popen(["prometheus", *arguments, "--log.level=error"]) as prometheus:
            time.sleep(SCRAPES * INTERVAL_SECONDS)
            with urllib.request.urlopen(f"http://127.0.0.1:{own}/metrics") as answer:
                metrics = dict(re.findall(r"^(\w+) (\S+)$", answer.read().decode(), flags=re.MULTILINE))
            prometheus.terminate()
    return float(metrics["prometheus_tsdb_head_series"]), float(metrics["process_resident_memory_bytes"])


if __name__ == "__main__":
    main()
