"""Makes the pictures of the page and of ``gpuwatch top``: a simulated node of which something can be seen, in a real Chromium.

    .venv/bin/python docs/tools/draw_page.py

It takes six minutes: the curves of the page need five of them. Look at each picture before you commit it.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from gpuwatch.top.agents import Access, http_source
from gpuwatch.top.display import Session, Wish
from gpuwatch.top.watching import Watching

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from browser import browser  # noqa: E402
from daemon import start  # noqa: E402

IMAGES = ROOT / "docs" / "images"
SCENARIOS = ROOT / "gpuwatch" / "device" / "simulated" / "scenarios"
SECONDS = 330.0
COURSES = {
    "board: l40s\n    loads: [{kind: memory_bound}]": "board: l40s\n    loads: [{kind: memory_bound, until: 95}, {kind: fp32, from: 150}]",
    "board: t4\n    loads: [{kind: tiny}]": "board: t4\n    loads: [{kind: tiny}, {kind: matmul, from: 60, until: 170}]",
    "board: h100-sxm\n    loads: [{kind: starved}]": "board: h100-sxm\n    loads: [{kind: matmul, until: 200}, {kind: starved, from: 200}]",
}
FAULTS = ("fault=gpu-lost,gpu=3,at=240", "fault=power-brake,gpu=5,at=250")
_PAGES = (("page", 1280, False), ("page-dark", 1280, True), ("page-phone", 390, False))
_HEIGHT = 1640
"""Of a picture at most: findings and GPUs, which is what there is to see."""


def main() -> None:
    """Write every picture."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scenario = folder / "pictures.yaml"
        text = (SCENARIOS / "mixed-fleet.yaml").read_text()
        for before, after in COURSES.items():
            assert before in text, before  # noqa: S101 - the scenario was changed: change this with it
            text = text.replace(before, after)
        scenario.write_text(text)
        faults = [part for fault in FAULTS for part in ("--inject", fault)]
        with start(["demo", "--scenario", str(scenario), *faults], folder, watch=False) as daemon, browser(folder) as tab:
            time.sleep(SECONDS)
            for picture, width, dark in _PAGES:
                tab.open(f"{daemon.url}/", width=width, dark=dark)
                (IMAGES / f"{picture}.png").write_bytes(tab.picture(_HEIGHT))
            svg = folder / "top.html"
            svg.write_text(f"<!DOCTYPE html><style>body{{margin:0}}svg{{display:block;width:900px}}</style>{terminal(daemon.url)}")
            tab.open(svg.as_uri(), width=900, height=100)
            (IMAGES / "top.png").write_bytes(tab.picture())


def terminal(url: str) -> str:
    """``gpuwatch top`` on a terminal of 80 columns, as SVG without the web font that it would load."""
    console = Console(record=True, width=80, height=19, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    watching = Watching([http_source(url, Access())], interval_seconds=60.0, timeout_seconds=5.0)
    watching.start(once=True)
    views = watching.wait()
    for line in Session(watching, Wish(sort="state"), console).lines(views):
        console.print(line)
    svg = console.export_svg(title="ssh gpu-node", theme=MONOKAI)
    return re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL).replace("Fira Code", "DejaVu Sans Mono")


if __name__ == "__main__":
    main()
