"""Draws a picture of each board for the documents, from its JSON and what a real Prometheus answers about the demo fleet of the tests.

Run from the source tree: ``.venv/bin/python docs/tools/draw_boards.py``. It needs Prometheus, promtool and Chromium (``make tools``).
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import picture  # noqa: E402 (the fleet is that of the tests)
import png  # noqa: E402

from dashboards.demo_fleet import SECONDS  # noqa: E402
from dashboards.drawn import INSTANT, UIDS, drawn, filled, rows_of, span_of  # noqa: E402
from dashboards.store import NOW, Store, filled_store  # noqa: E402

CHOSEN: Final = {
    "gpuwatch-job": {"namespace": "language", "job_name": "gpt"},
    "gpuwatch-node": {"node": "a100-2"},
}
"""What the reader chose above a board."""
_RANGE: Final = 3 * 3600.0
_COLUMN, _ROW, _GAP = 58, 33, 6
_TITLE: Final = 24
_STYLE: Final = """
body{margin:0;font:13px Roboto,"DejaVu Sans",sans-serif;background:#f1f3f6;color:#1f2430;position:relative}
.head{position:absolute;left:10px;top:8px;font-size:15px}
.head b{font-size:18px;margin-right:16px}.head span{color:#555e6b;margin-right:14px}
.row{position:absolute;font-weight:600;padding:8px 4px;color:#3a4252}
.panel{position:absolute;background:#fff;border:1px solid #dde1e7;border-radius:3px;overflow:hidden}
.panel h2{font-size:13px;margin:0;padding:5px 8px 0;height:19px;font-weight:600;white-space:nowrap}.inside{padding:0 6px}
.stat{white-space:nowrap;display:flex;align-items:center;justify-content:center;font-size:25px;font-weight:600;margin:0 -6px;height:100%}
.none{display:flex;align-items:center;justify-content:center;color:#79828f;height:100%;text-align:center;font-size:12px}
table{border-collapse:collapse;width:100%;font-size:12px}
.rows th{text-align:left;color:#3566b8;font-weight:600;padding:3px 6px;white-space:nowrap}
.rows td{padding:2px 6px;border-top:1px solid #edf0f3;height:16px;white-space:nowrap;max-width:220px;overflow:hidden;text-overflow:ellipsis}
.rows a{color:#3566b8;text-decoration:underline}.more{color:#79828f;font-size:11px;padding:2px 6px}
.bars td{padding:4px 6px;white-space:nowrap}.bar{width:50%}.bar div{height:14px;min-width:1px}
.beside{display:flex}.legend{overflow:hidden;font-size:11px;color:#3a4252}.legend div{white-space:nowrap;height:15px}
.below .legend div{display:inline-block;margin-right:12px}.legend i{display:inline-block;width:10px;height:3px;margin:0 5px 3px 4px}
svg text{font-size:10.5px;fill:#555e6b}svg .grid{stroke:#e6e9ee}svg .state{fill:#fff}.text{padding:4px 4px;font-size:12px;line-height:1.45}
.text ul{padding-left:18px;margin:6px 0}.text p{margin:6px 0}
"""


def main() -> None:
    """Draw them all, or those that are named."""
    wanted = sys.argv[1:] or UIDS
    with tempfile.TemporaryDirectory() as folder, filled_store(Path(folder)) as store:
        for uid in wanted:
            shoot(page_of(uid, store), ROOT / "docs" / "images" / f"{uid.removeprefix('gpuwatch-')}.png", Path(folder))


def page_of(uid: str, store: Store) -> tuple[str, int]:
    """The board as HTML, and its height."""
    board = drawn(uid)
    chosen = CHOSEN.get(uid, {})
    parts, bottom = [], 0
    for panel in board["panels"]:
        place = panel["gridPos"]
        left, top = place["x"] * _COLUMN + _GAP, place["y"] * _ROW + 40
        bottom = max(bottom, top + place["h"] * _ROW)
        if panel["type"] == "row":
            sign = "+" if panel["collapsed"] else "-"
            parts.append(f'<div class="row" style="left:{left}px;top:{top}px">{sign} {escape(panel["title"])}</div>')
            continue
        width, height = place["w"] * _COLUMN - _GAP, place["h"] * _ROW - _GAP
        inside = inside_of(panel, store, uid, width - 14, height - _TITLE - 4)
        parts.append(
            f'<div class="panel" style="left:{left}px;top:{top}px;width:{width}px;height:{height}px"><h2>{escape(panel["title"])}</h2>'
            f'<div class="inside" style="height:{height - _TITLE}px">{inside}</div></div>'
        )
    shown = [f"{one['label']}: {chosen.get(one['name'], 'All')}" for one in board["templating"]["list"][1:]]
    head = f'<div class="head"><b>{escape(board["title"])}</b>{"".join(f"<span>{escape(text)}</span>" for text in shown)}</div>'
    return f"<!doctype html><meta charset=utf-8><style>{_STYLE}</style>{head}{''.join(parts)}", bottom + _GAP


def inside_of(panel: dict[str, Any], store: Store, uid: str, width: int, height: int) -> str:
    """The drawing of one panel."""
    kind = panel["type"]
    if kind == "text":
        return f'<div class="text">{_markdown(panel["options"]["content"])}</div>'
    chosen, seconds = CHOSEN.get(uid, {}), min(span_of(uid), float(SECONDS))
    texts = [filled(target["expr"], chosen, seconds) for target in panel["targets"]]
    if kind in INSTANT:
        answers = [store.instant(text) for text in texts]
        if kind == "table":
            return picture.table(panel, rows_of(panel, answers), height, NOW)
        named = [
            (_legend(target["legendFormat"], one["metric"]), float(one["value"][1]))
            for target, answer in zip(panel["targets"], answers, strict=True)
            for one in answer
        ]
        return picture.bars(panel, named, NOW) if kind == "bargauge" else picture.stat(panel, [value for _, value in named], NOW)
    series = [
        picture.Series(_legend(target["legendFormat"], one["metric"]), tuple((float(at), float(value)) for at, value in one["values"]))
        for target, text in zip(panel["targets"], texts, strict=True)
        for one in store.graph(text, _RANGE)
    ]
    frame = picture.Frame(width, height, NOW - _RANGE, NOW)
    if kind == "timeseries":
        return picture.graph(panel, series, frame, NOW)
    return picture.timeline(panel, series, frame, shaded=kind == "status-history")


def shoot(page: tuple[str, int], target: Path, folder: Path) -> None:
    """A picture of a page by Chromium."""
    html, height = page
    source = folder / "board.html"
    source.write_text(html, encoding="utf-8")
    size = f"--window-size={24 * _COLUMN + 2 * _GAP},{height}"
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--disable-lcd-text",
        "--force-device-scale-factor=1",
        size,
    ]
    subprocess.run(["chromium", *flags, f"--screenshot={target}", source.as_uri()], check=True, capture_output=True)
    png.shrink(target)
    print(f"{target.relative_to(ROOT)}: {target.stat().st_size / 1024:.0f} KiB")


def _legend(text: str, labels: dict[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), text)


def _markdown(text: str) -> str:
    """Bold words, code, lists and paragraphs."""
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", escape(text)))
    blocks = []
    for block in marked.split("\n\n"):
        lines = block.split("\n")
        if all(line.startswith("- ") for line in lines):
            blocks.append("<ul>" + "".join(f"<li>{line[2:]}</li>" for line in lines) + "</ul>")
        else:
            blocks.append(f"<p>{' '.join(lines)}</p>")
    return "".join(blocks)


if __name__ == "__main__":
    main()
