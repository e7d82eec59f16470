"""What every board must keep to: the rules of Grafana's own linter for dashboards, adapted where said, and ours."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import pytest
import yaml
from promql_parser import BinaryExpr, Call, MatrixSelector, VectorSelector, parse

from dashboards.drawn import ROOT, UIDS, Asked, drawn, filled, panels_of, queries_of
from gpuwatch.dashboards.board import Board, Panel
from gpuwatch.dashboards.pack import BOARDS, FOLDERS, SDK, board_files
from gpuwatch.dashboards.query import PRICE
from gpuwatch.dashboards.style import COLUMNS, TAG, reference
from gpuwatch.rules.pack import rule_file
from rules.queries import Labels, labels_of, selectors_of

QUERIES: Final = [asked for uid in UIDS for asked in queries_of(uid)]
PANELS: Final = [(board, panel) for board in BOARDS for row in board.rows for panel in row.panels]
UNITS: Final = {
    "short", "percentunit", "bytes", "watt", "celsius", "Bps", "s", "cps", "kwatth", "currencyUSD", "dateTimeFromNow",
}  # fmt: skip
"""Grafana's names of units that the boards use."""
LEVELS: Final = {
    "gpuwatch_tensorflow_nonfinite_losses_total": "so rare that its first is what is looked for",
    "gpuwatch_gpu_ecc_errors_total": "the device's own count since its driver was loaded is what decides",
    "gpuwatch_gpu_xid_errors_total": "shown as a count beside the time of the last one; increase() misses the first",
    "gpuwatch_reader_restarts_total": "so rare that its steps are what is looked for",
    "gpuwatch_nvswitch_errors_total": "so rare that its steps are what is looked for",
}
"""Counters that may be shown as they are, and why; all others only grow under rate() or increase()."""
RATES: Final = {"rate", "irate", "increase"}
_LEGEND: Final = re.compile(r"\{\{(\w+)\}\}")
_PLACE: Final = re.compile(r"\$\{__(data\.fields|field\.labels)\.(\w+)\}")


def named(case: Asked | tuple[Board, Panel]) -> str:
    """For the names of tests."""
    return str(case) if isinstance(case, Asked) else f"{case[0].name} / {case[1].title}"


def own_variables(uid: str) -> set[str]:
    """Variables of a board but its data source."""
    return {one["name"] for one in drawn(uid)["templating"]["list"]} - {"datasource"}


@pytest.mark.parametrize("uid", UIDS)
def test_a_board_is_set_up_as_all_are(uid: str) -> None:
    """Its uid, tag and time are fixed, nobody edits it in place, and it leads to the other boards with time and variables."""
    board = drawn(uid)
    assert board["uid"] == uid
    assert "id" not in board
    assert board["tags"] == [TAG]
    assert board["editable"] is False
    assert (board["refresh"], board["timezone"], board["graphTooltip"]) == ("1m", "browser", 1)
    assert board["description"].endswith("?")
    [link] = board["links"]
    assert (link["type"], link["tags"], link["asDropdown"], link["includeVars"], link["keepTime"]) == (
        "dashboards",
        [TAG],
        True,
        True,
        True,
    )


@pytest.mark.parametrize("uid", UIDS)
def test_variables_are_asked_anew(uid: str) -> None:
    """The data source comes first, then the cluster; the values of each are asked again when the time range changes, and all means all."""
    source, *others = drawn(uid)["templating"]["list"]
    assert (source["name"], source["type"], source["query"]) == ("datasource", "datasource", "prometheus")
    assert others[0]["name"] == "cluster"
    for variable in others:
        assert variable["refresh"] == 2
        assert variable["label"]
        assert variable["includeAll"] == variable["multi"]
        if variable["multi"]:
            assert variable["allValue"] == ".*"
        selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"]).groups()  # type: ignore[union-attr]
        known = labels_of(filled(selector, {}, 3600))
        assert known is not None
        assert label in known


@pytest.mark.parametrize("uid", UIDS)
def test_no_source_is_written_in(uid: str) -> None:
    """Every panel, variable and annotation asks the data source that the reader chose."""
    board = drawn(uid)
    asking = [one for one in panels_of(board) if one["type"] not in ("row", "text")]
    asking += [one for one in board["templating"]["list"] if one["name"] != "datasource"] + board["annotations"]["list"]
    assert {json.dumps(one["datasource"], sort_keys=True) for one in asking} == {'{"type": "prometheus", "uid": "${datasource}"}'}


@pytest.mark.parametrize("uid", UIDS)
def test_panels_have_their_own_place(uid: str) -> None:
    """Ids differ; panels fit into the columns of the grid and none lies on another."""
    board = drawn(uid)
    panels = list(panels_of(board))
    assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= COLUMNS
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize("case", PANELS, ids=named)
def test_a_panel_explains_itself(case: tuple[Board, Panel]) -> None:
    """It has a title, a description in whole sentences, a known unit, something to ask, and says a fact when it found nothing."""
    panel = case[1]
    assert panel.title
    assert panel.description.endswith(".")
    assert len(panel.description) > 40
    assert {panel.unit, *(column.unit or "short" for column in panel.columns)} <= UNITS
    if panel.kind == "text":
        assert panel.content
    else:
        assert panel.queries
        assert panel.empty
        if panel.kind == "graph" and all(query.expression.endswith("> 0") for query in panel.queries):
            assert panel.empty.startswith("none "), "it is also empty when all are zero"


@pytest.mark.parametrize("case", PANELS, ids=named)
def test_what_is_shown_is_in_the_answer(case: tuple[Board, Panel]) -> None:
    """Columns and legends name labels that the answers of the panel have; each column of values has its query, and the other way round."""
    panel = case[1]
    answers = [_any_labels(parse(filled(query.expression, {}, 3600))) for query in panel.queries]
    known = None if None in answers else frozenset().union(*(answer or () for answer in answers))
    for column in panel.columns:
        if column.label:
            assert known is None or column.label in known, column.label
    assert {query.column for query in panel.queries if query.column} == {column.title for column in panel.columns if not column.label}
    for query, labels in zip(panel.queries, answers, strict=True):
        assert labels is None or set(_LEGEND.findall(query.legend)) <= labels, query.legend
    assert not panel.sort or panel.sort.removeprefix("-") in {column.title for column in panel.columns}


def _any_labels(node: Any) -> Labels:
    """Labels that some series of the answer has: the sides of an ``or`` may differ."""
    if isinstance(node, BinaryExpr) and str(node.op) == "or":
        left, right = _any_labels(node.lhs), _any_labels(node.rhs)
        return None if left is None or right is None else left | right
    return labels_of(node.prettify())


@pytest.mark.parametrize("asked", QUERIES, ids=named)
def test_a_query_names_what_exists(asked: Asked) -> None:
    """It parses, and its metrics and labels are in the catalogue, recorded by a rule of ours, or among the few of others."""
    labels_of(filled(asked.expression, {}, 3600))


@pytest.mark.parametrize("asked", QUERIES, ids=named)
def test_a_query_takes_the_variables(asked: Asked) -> None:
    """Every selector asks for the chosen clusters, and every query for what the reader chose on this board.

    Adapted: Grafana's linter wants matchers of job and instance. The boards find agents by what they export, under whatever job.
    """
    expression = asked.expression.replace("$__rate_interval", "5m").replace("$__range_s", "1").replace("$__range", "5m")
    chosen = set()
    for selector in selectors_of(expression):
        matchers = {matcher.name: matcher.value for matcher in selector.matchers.matchers}
        assert selector.name == PRICE or matchers.get("cluster") == "$cluster", selector.name
        chosen |= {name for name, value in matchers.items() if value == f"${name}"}
    exempt = next(panel.exempt for board, panel in PANELS if board.uid == asked.uid and panel.title == asked.panel["title"])
    assert exempt or chosen - {"cluster"}, "declare the panel exempt, with the reason"
    assert chosen <= own_variables(asked.uid)


@pytest.mark.parametrize("asked", QUERIES, ids=named)
def test_counters_grow(asked: Asked) -> None:
    """Rates are taken of counters alone, over Grafana's own interval; totals over the range; few counters are shown as they are."""
    intervals = re.findall(r"\b(\w+)\([^()]*\[([^\]]+)\]", asked.expression)
    for function, interval in intervals:
        if function in ("rate", "irate"):
            assert interval == "$__rate_interval"
        elif function != "avg_over_time":  # one value of a table, over the window of an alert
            assert interval == "$__range"
    for name, rated in _counters(parse(filled(asked.expression, {}, 3600)), rated=False):
        assert rated == name.endswith(("_total", "_sum", "_count")) or (not rated and name in LEVELS), name


def _counters(node: Any, *, rated: bool) -> list[tuple[str, bool]]:
    """Every metric of a query, and whether it stands in a rate."""
    if isinstance(node, VectorSelector):
        return [(node.name or "", rated)]
    if isinstance(node, MatrixSelector):
        return [(node.vector_selector.name or "", rated)]
    inside = rated or (isinstance(node, Call) and node.func.name in RATES)
    parts = [inner for name in ("expr", "lhs", "rhs") if (inner := getattr(node, name, None)) is not None]
    return [found for part in (*parts, *getattr(node, "args", ())) for found in _counters(part, rated=inside)]


@pytest.mark.parametrize("uid", UIDS)
def test_nothing_is_asked_twice(uid: str) -> None:
    """A board asks each thing once, but for the present and the past of one number."""
    asked = [(one.expression, one.instant) for one in queries_of(uid)]
    assert sorted(asked) == sorted(set(asked))


def test_promtool_takes_every_query(tmp_path: Path) -> None:
    """The real promtool of the oldest Prometheus that is supported reads each query and those of the annotations, as a rule."""
    expressions = [one.expression for one in QUERIES] + [one["expr"] for uid in UIDS for one in drawn(uid)["annotations"]["list"]]
    rules = [{"record": f"board:query:{number}", "expr": filled(text, {}, 3600)} for number, text in enumerate(expressions)]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "boards", "rules": rules}]}))
    done = subprocess.run(["promtool", "check", "rules", "rules.yml"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{len(rules)} rules found" in done.stdout


@pytest.mark.parametrize("uid", UIDS)
def test_links_lead_somewhere(uid: str) -> None:
    """A link goes to a board that exists, sets variables that it has from values that the row has, and keeps source, cluster and time."""
    for panel in panels_of(drawn(uid)):
        for url in re.findall(r'"url": "([^"]+)"', json.dumps(panel)):
            _check_link(url, panel)


def _check_link(url: str, panel: dict[str, Any]) -> None:
    address, query = urlsplit(url).path, urlsplit(url).query
    target = address.removeprefix("/d/")
    assert target in UIDS
    for kept in ("${datasource:queryparam}", "${cluster:queryparam}", "${__url_time_range}"):
        assert kept in query
    assert {name.removeprefix("var-") for name, _ in parse_qsl(query)} <= own_variables(target)
    titles = {one["matcher"]["options"] for one in panel["fieldConfig"]["overrides"]}
    for kind, name in _PLACE.findall(url):
        if kind == "data.fields":
            assert name in titles, f"{panel['title']} has no column {name}"
        else:
            assert all(f"{{{{{name}}}}}" in target["legendFormat"] for target in panel["targets"])


def test_alerts_lead_to_boards() -> None:
    """The address in each alert is that of a board, with variables that it has."""
    for group in yaml.safe_load(rule_file())["groups"]:
        for rule in group["rules"]:
            if "alert" in rule:
                url = rule["annotations"]["dashboard_url"]
                uid = urlsplit(url).path.removeprefix("/d/").strip("/")
                assert uid in UIDS
                assert set(re.findall(r"var-(\w+)=", url)) <= own_variables(uid)


def test_the_committed_files_are_the_drawn_ones() -> None:
    """Drawn twice they are the same; sorted, and the same in both folders."""
    files = board_files()
    assert files == board_files()
    for path, text in files.items():
        assert (ROOT / path).read_text(encoding="utf-8") == text
        assert json.dumps(json.loads(text), indent=1, sort_keys=True, ensure_ascii=False) + "\n" == text
    for folder in FOLDERS:
        assert {path.name for path in (ROOT / folder).iterdir()} == {f"{uid}.json" for uid in UIDS}


def test_references_are_letters() -> None:
    """Grafana knows the queries of a panel by letters."""
    assert [reference(number) for number in range(3)] == ["A", "B", "C"]
    assert max(len(panel.queries) for _, panel in PANELS) <= 26


def test_without_the_sdk_one_line_says_what_to_install() -> None:
    """``gpuwatch generate`` ends with one line and no traceback where the SDK is missing."""
    program = "import sys; sys.modules['grafana_foundation_sdk'] = None; from gpuwatch.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program, "generate", "--check"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.endswith(f"pip install {SDK}")


def test_the_daemon_knows_no_boards() -> None:
    """What runs on a node loads neither the boards nor the SDK."""
    program = (
        "import sys, gpuwatch.agent, gpuwatch.server, gpuwatch.demo, gpuwatch.metrics.exposition; "
        "print([name for name in sys.modules if 'grafana' in name or 'dashboards' in name])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_sdk_is_pinned() -> None:
    """The version that is named to people is the one that is locked."""
    assert f"\n{SDK} " in (ROOT / "requirements" / "dev.txt").read_text()
    assert f'"{SDK}"' in (ROOT / "pyproject.toml").read_text()
