"""Every query of every board against a real Prometheus that holds the demo fleet, and the ways through the boards that are promised."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from dashboards.demo_fleet import SECONDS
from dashboards.drawn import INSTANT, ROOT, UIDS, Asked, Row, drawn, filled, followed, links_of, panels_of, queries_of, rows_of, span_of
from dashboards.store import Store
from gpuwatch.dashboards.board import UNKNOWN

EMPTY: Final = {
    ("gpuwatch-node", "Memory activity and engines", "B"): "no simulated work uses a media engine",
    ("gpuwatch-agent", "Errors of NVSwitches", "A"): "no simulated node has NVSwitches",
    ("gpuwatch-agent", "Events for pods and nodes", "A"): "kubernetes.events is off on these nodes",
}
"""Queries that find nothing in this fleet, and why."""
Table = Callable[[str, list[tuple[str, ...]]], None]


def choices_of(store: Store, uid: str) -> list[dict[str, str]]:
    """What a reader may choose above a board, where one must choose; elsewhere all."""
    if uid == "gpuwatch-node":
        return [{"node": node} for node in store.values("gpuwatch_build_info", "node")]
    if uid == "gpuwatch-job":
        jobs = store.instant("count by (namespace, job_name) (last_over_time(gpuwatch_job_gpu_allocated_seconds_total[4h]))")
        return [dict(one["metric"]) for one in jobs]
    return [{}]


def answer(store: Store, asked: Asked, chosen: Mapping[str, str]) -> list[dict[str, Any]]:
    """What Prometheus answers to a query as the board would ask it."""
    seconds = span_of(asked.uid)
    expression = filled(asked.expression, chosen, seconds)
    return store.instant(expression) if asked.instant else store.graph(expression, float(SECONDS))


def test_every_query_finds_something(store: Store, show_table: Table) -> None:
    """Each query of each panel finds data in the fleet, unless it is declared empty with the reason; and those that are, are."""
    rows: list[tuple[str, ...]] = [("board", "panel", "kind", "queries", "series", "found for", "")]
    empty: set[tuple[str, str, str]] = set()
    for uid in UIDS:
        choices = choices_of(store, uid)
        by_panel: dict[str, list[Asked]] = {}
        for asked in queries_of(uid):
            by_panel.setdefault(asked.panel["title"], []).append(asked)
        for title, queries in by_panel.items():
            counts = [[len(answer(store, asked, chosen)) for chosen in choices] for asked in queries]
            silent = [(uid, title, asked.reference) for asked, found in zip(queries, counts, strict=True) if not any(found)]
            empty.update(silent)
            most, hit = max(map(sum, zip(*counts, strict=True))), sum(any(column) for column in zip(*counts, strict=True))
            found = f"{hit} of {len(choices)}" if len(choices) > 1 else "all" if hit else "none"
            why = "; ".join(f"{key[2]} is empty: {EMPTY.get(key, 'UNDECLARED')}" for key in silent)
            rows.append((uid.removeprefix("gpuwatch-"), title, queries[0].panel["type"], str(len(queries)), str(most), found, why))
    show_table("Panels of the boards and what they find in the demo fleet", rows)
    assert empty == set(EMPTY)


def test_variables_and_annotations_find_something(store: Store) -> None:
    """Each variable has values to choose from, each annotation marks something."""
    for uid in UIDS:
        board = drawn(uid)
        for variable in board["templating"]["list"][1:]:
            selector, _, label = variable["definition"].removeprefix("label_values(").removesuffix(")").rpartition(", ")
            assert any(store.values(filled(selector, chosen, float(SECONDS)), label) for chosen in choices_of(store, uid)), variable["name"]
        for annotation in board["annotations"]["list"]:
            texts = [filled(annotation["expr"], chosen, float(SECONDS)) for chosen in choices_of(store, uid)]
            assert any(store.graph(text, float(SECONDS)) for text in texts), annotation["name"]


def table(store: Store, uid: str, title: str, chosen: Mapping[str, str]) -> tuple[dict[str, Any], list[Row]]:
    """A table of a board, as it is and with its rows."""
    panel = next(one for one in panels_of(drawn(uid)) if one["title"] == title)
    assert panel["type"] == "table"
    queries = [asked for asked in queries_of(uid) if asked.panel["title"] == title]
    return panel, rows_of(panel, [answer(store, asked, chosen) for asked in queries])


def value(store: Store, uid: str, title: str, chosen: Mapping[str, str]) -> float:
    """What a stat of a board shows."""
    [asked] = [one for one in queries_of(uid) if one.panel["title"] == title and one.panel["type"] in INSTANT]
    [one] = answer(store, asked, chosen)
    return float(one["value"][1])


def click(shown: tuple[dict[str, Any], list[Row]], column: str, **wanted: str) -> tuple[str, dict[str, str]]:
    """Follow the link of a cell, in the first row that has these values: the next board and its variables."""
    panel, rows = shown
    [link, *_] = links_of(panel, column)
    return followed(link["url"], next(one for one in rows if wanted.items() <= one.items()))


def test_the_idle_job_is_found(store: Store) -> None:
    """Fleet, the alert about it, its job: it holds a GPU and used nothing of it."""
    uid, chosen = click(table(store, "gpuwatch-fleet", "Alerts that fire", {}), "Job", Alert="GpuJobIdle")
    assert (uid, chosen) == ("gpuwatch-job", {"namespace": "research", "job_name": "bob"})
    assert value(store, uid, "GPUs held", chosen) == 1
    assert value(store, uid, "Used", chosen) < 0.02
    [worker] = table(store, uid, "Workers", chosen)[1]
    assert (worker["Node"], worker["GPU"]) == ("h100-2", "3")


def test_the_failing_gpu_is_found(store: Store) -> None:
    """Fleet, the row of the worst GPU, its node: why, what to do, and whom it hits."""
    uid, chosen = click(table(store, "gpuwatch-fleet", "GPUs that need somebody", {}), "GPU", State="failed", Node="a100-2")
    assert (uid, chosen) == ("gpuwatch-node", {"node": "a100-2", "gpu": "2"})
    assert value(store, uid, "Worst verdict", chosen) == 3
    reasons = {row["Reason"]: row["Action"] for row in table(store, uid, "Why the verdict is not ok", chosen)[1]}
    assert reasons == {"gpu_lost": "reboot_node", "xid_79": "reboot_node"}
    holders = {row["Job"] for row in table(store, "gpuwatch-fleet", "GPUs that need somebody", {})[1] if row["Node"] == "a100-2"}
    assert holders == {"wav2vec"}


def test_the_straggler_is_found(store: Store) -> None:
    """Fleet, the alert about it, its job: the first worker of the table, and from there its machine."""
    uid, chosen = click(table(store, "gpuwatch-fleet", "Alerts that fire", {}), "Job", Alert="GpuJobStraggler")
    assert (uid, chosen) == ("gpuwatch-job", {"namespace": "language", "job_name": "gpt"})
    first, *others = table(store, uid, "Workers", chosen)[1]
    assert (first["Pod"], first["Node"], first["GPU"]) == ("gpt-worker-5", "h100-2", "1")
    assert float(first["Use"]) < 0.7 * min(float(row["Use"]) for row in others)
    assert float(first["Tensor"]) > 0.75 * max(float(row["Tensor"]) for row in others)
    assert click(table(store, uid, "Workers", chosen), "GPU", Pod="gpt-worker-5") == ("gpuwatch-node", {"node": "h100-2", "gpu": "1"})


def test_the_cause_is_found(store: Store) -> None:
    """Fleet, the alert about it, its job: why in a word, and how its input is made; a late worker; jobs that say nothing; a broken GPU."""
    uid, chosen = click(table(store, "gpuwatch-fleet", "Alerts that fire", {}), "Job", Alert="TensorFlowInputBound")
    assert (uid, chosen) == ("gpuwatch-job", {"namespace": "serving", "job_name": "classify"})
    assert value(store, uid, "Waits for input", chosen) == pytest.approx(0.68)
    assert {row["Prefetch"] for row in table(store, uid, "What its input is made of", chosen)[1]} == {"false"}
    causes = {
        ("serving", "classify"): "waits for its input", ("language", "gpt"): "one worker is not like the others",
        ("research", "bob"): "holds memory, does nothing", ("research", "sweep"): "too little work in a step", ("vision", "resnet"): "none",
        ("serving", "ranker"): "held down by heat or supply", ("research", "grid"): "wasteful, reason not known",
        ("vision", "dora"): "none",
    }  # fmt: skip
    words = next(one for one in panels_of(drawn(uid)) if one["title"] == "Cause")["fieldConfig"]["defaults"]["mappings"][0]["options"]
    for (namespace, job), word in causes.items():
        number = value(store, uid, "Cause", {"namespace": namespace, "job_name": job})
        assert words[f"{number:g}"]["text"] == word, job
    late = table(store, "gpuwatch-job", "Alerts about the job and its GPUs", {"namespace": "language", "job_name": "gpt"})[1]
    assert ("TensorFlowImbalanced", "gpt-worker-5") in {(row["Alert"], row.get("Pod")) for row in late}


def test_unknown_is_not_zero(store: Store) -> None:
    """A lost GPU, a board without ECC and an instance before Hopper show that a value is not known; an idle one shows zero."""
    lost = {row["GPU"]: row for row in table(store, "gpuwatch-node", "GPUs now", {"node": "a100-2"})[1]}
    assert (lost["2"]["Use"], lost["2"]["Verdict"]) == (UNKNOWN, 3)
    assert lost["0"]["Use"] == pytest.approx(1, abs=0.05)
    assert {row["ECC"] for row in table(store, "gpuwatch-node", "GPUs now", {"node": "rtx4090-1"})[1]} == {UNKNOWN}
    assert [row["Use"] for row in table(store, "gpuwatch-node", "GPUs now", {"node": "l40s-1"})[1] if row["GPU"] == "2"] == [0]
    slices = table(store, "gpuwatch-mig", "Instances and their holders", {})[1]
    assert {row["At work"] for row in slices if row["Node"] == "a100-1"} == {UNKNOWN}
    assert [row["At work"] for row in slices if row["Node"] == "h100-3" and "Job" not in row] == [0]


def test_without_a_price_no_cost_is_shown(store: Store) -> None:
    """Namespaces whose GPUs have no price have no cost, rather than none to pay; without any price the panels say so."""
    rows = {row["Namespace"]: row for row in table(store, "gpuwatch-efficiency", "Namespaces", {})[1]}
    assert "Cost" in rows["language"]
    assert "Cost" not in rows["speech"]
    for panel in panels_of(drawn("gpuwatch-efficiency")):
        if panel["title"] in ("Cost", "Cost of idle hours"):
            assert panel["fieldConfig"]["defaults"]["noValue"] == "no price set"


def test_the_way_is_written_down() -> None:
    """The page of the boards names each panel and column of those ways as it is."""
    page = (ROOT / "docs" / "dashboards.md").read_text(encoding="utf-8")
    titles = (
        "Alerts that fire",
        "GPUs that need somebody",
        "Workers",
        "Why the verdict is not ok",
        "GpuJobIdle",
        "GpuJobStraggler",
        "TensorFlowInputBound",
        "Cause",
        "Waits for input",
        "What its input is made of",
    )
    assert [title for title in titles if f"**{title}**" not in page and f"`{title}`" not in page] == []
