"""A real Prometheus for the tests that ask one."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from daemon import free_port


class Prometheus:
    """A server's HTTP API."""

    def __init__(self, url: str, log: Path) -> None:
        self._url = url
        self.log = log

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an answer; ``None`` while the server does not answer."""
        with contextlib.suppress(httpx.TransportError):
            answer = httpx.get(f"{self._url}/api/v1/{path}", params=parameters)
            return answer.json()["data"] if answer.status_code == 200 else None
        return None

    def query(self, expression: str) -> dict[str, float]:
        """Values of an instant query by the label ``gpu`` (empty where a series has none)."""
        data = self.ask("query", query=expression)
        return {one["metric"].get("gpu", ""): float(one["value"][1]) for one in data["result"]} if data else {}


@contextlib.contextmanager
def prometheus(folder: Path, configuration: str, *flags: str) -> Iterator[Prometheus]:
    """A server with this configuration, from its start to its end; it need not answer yet."""
    program, port, file = shutil.which("prometheus"), free_port(), folder / "prometheus.yml"
    assert program, "Prometheus is not installed; scripts/install-missing gets it"
    file.write_text(configuration)
    places = [f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
    server = Prometheus(f"http://127.0.0.1:{port}", folder / "prometheus.log")
    with server.log.open("wb") as log:
        process = subprocess.Popen([program, *places, *flags], stdout=log, stderr=subprocess.STDOUT, cwd=folder)
        try:
            yield server
        finally:
            process.terminate()
            process.wait()
