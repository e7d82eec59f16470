"""What a query reads, and which labels its result has: to hold it against the catalogue.

``None`` is a set of labels that is not known: a series of somebody else. Everything may be asked of it.
"""

from __future__ import annotations

import re
from typing import Any

from promql_parser import (
    AggModifierType,
    AggregateExpr,
    BinaryExpr,
    Call,
    LabelModifierType,
    MatrixSelector,
    NumberLiteral,
    ParenExpr,
    StringLiteral,
    SubqueryExpr,
    UnaryExpr,
    ValueType,
    VectorMatchCardinality,
    VectorSelector,
    parse,
)

from gpuwatch.dashboards.query import PRICE
from gpuwatch.metrics.catalog import METRICS
from gpuwatch.rules.alert import placed
from gpuwatch.rules.pack import RECORDINGS
from gpuwatch.rules.thresholds import DEFAULTS
from gpuwatch.tensorflow.series import SERIES, TARGET_LABELS, Series

Labels = frozenset[str] | None
TARGET = frozenset({"job", "instance", "cluster"})
"""What Prometheus adds to each series that it scrapes, and the fleet to all."""
OUTSIDE = {
    "up": TARGET | {"node"},
    "kube_node_status_allocatable": TARGET | {"node", "resource", "unit"},
    "kube_node_spec_unschedulable": TARGET | {"node"},
    "kube_pod_status_phase": TARGET | {"namespace", "pod", "uid", "phase"},
    "kueue_pending_workloads": TARGET | {"cluster_queue", "status"},
    "ALERTS": None,
    "scrape_duration_seconds": TARGET | {"node"},
    "scrape_samples_scraped": TARGET | {"node"},
    "process_cpu_seconds_total": TARGET | {"node"},
    "process_resident_memory_bytes": TARGET | {"node"},
    "process_start_time_seconds": TARGET | {"node"},
    PRICE: frozenset({"model"}),
}
"""The few series of others that rules, runbooks and boards may read."""
_NONE: frozenset[str] = frozenset()
_QUERY = re.compile(r'query \(printf "((?:[^"\\]|\\.)*)"|query "((?:[^"\\]|\\.)*)"')


class QueryError(AssertionError):
    """A query names a metric or a label that does not exist."""


def labels_of(query: str) -> Labels:
    """The labels that each series of its result may have.

    Raises:
        QueryError: it names what does not exist.
    """
    try:
        expression = parse(query)
    except ValueError as error:
        raise QueryError(f"{error}: {query}") from error
    try:
        return _labels(expression)
    except QueryError as error:
        raise QueryError(f"{error} in {query}") from None


def queries_in(description: str) -> list[str]:
    """The queries that a description asks when the alert fires, with some value in each place."""
    return [(first or second).replace("%q", '"x"').replace("\\", "") for first, second in _QUERY.findall(placed(description, DEFAULTS))]


def selectors_of(query: str) -> list[VectorSelector]:
    """Every selector of a query."""
    found: list[VectorSelector] = []
    _collect(parse(query), found)
    return found


def _collect(node: Any, found: list[VectorSelector]) -> None:
    if isinstance(node, VectorSelector):
        found.append(node)
    elif isinstance(node, MatrixSelector):
        found.append(node.vector_selector)
    for part in ("expr", "lhs", "rhs"):
        if (inner := getattr(node, part, None)) is not None:
            _collect(inner, found)
    for inner in getattr(node, "args", ()):
        _collect(inner, found)


def _labels(node: Any) -> Labels:
    if isinstance(node, VectorSelector):
        return _selected(node)
    if isinstance(node, MatrixSelector):
        return _selected(node.vector_selector)
    if isinstance(node, (ParenExpr, SubqueryExpr, UnaryExpr)):
        return _labels(node.expr)
    if isinstance(node, AggregateExpr):
        return _aggregated(node)
    if isinstance(node, BinaryExpr):
        return _joined(node)
    return _called(node) if isinstance(node, Call) else _NONE


def _selected(node: VectorSelector) -> Labels:
    labels = _series(node.name or "")
    for matcher in node.matchers.matchers:
        _require({matcher.name}, labels, f"{node.name} has no label")
    return labels


def _series(name: str) -> Labels:
    for metric in METRICS:
        if metric.name == name:
            return TARGET | frozenset(metric.labels)
    for series in SERIES:
        if name in parts_of(series):
            return TARGET | frozenset(TARGET_LABELS) | parts_of(series)[name]
    for recording in RECORDINGS:
        if recording.name == name:
            return labels_of(placed(recording.expression, DEFAULTS))
    if name not in OUTSIDE:
        raise QueryError(f"there is no metric {name!r}")
    return OUTSIDE[name]


def parts_of(series: Series) -> dict[str, frozenset[str]]:
    """The names under which a family of a training process is stored, each with its own labels."""
    own = frozenset(series.labels)
    if series.type != "histogram":
        return {series.name: own}
    return {f"{series.name}_bucket": own | {"le"}, f"{series.name}_sum": own, f"{series.name}_count": own}


def _aggregated(node: AggregateExpr) -> Labels:
    inner = _labels(node.expr)
    choosing = str(node.op) in ("topk", "bottomk")
    if node.modifier is None:
        return inner if choosing else _NONE
    named = frozenset(node.modifier.labels)
    _require(named, inner, "an aggregation has no label")
    if choosing:
        return inner
    if node.modifier.type == AggModifierType.By:
        return named
    return None if inner is None else inner - named


def _joined(node: BinaryExpr) -> Labels:
    left, right = _labels(node.lhs), _labels(node.rhs)
    if _is_scalar(node.lhs) or _is_scalar(node.rhs):
        return right if _is_scalar(node.lhs) else left
    modifier, operator = node.modifier, str(node.op)
    matching = modifier.matching if modifier else None
    named = frozenset(matching.labels) if matching else _NONE
    for side in (left, right):
        _require(named, side, "a side of a join has no label")
    if operator == "or":
        return None if left is None or right is None else left & right
    if operator in ("and", "unless") or modifier is None:
        return left
    extra = frozenset(modifier.group_labels or ())
    if modifier.card == VectorMatchCardinality.ManyToOne:
        return _with(left, extra, right)
    if modifier.card == VectorMatchCardinality.OneToMany:
        return _with(right, extra, left)
    if matching is not None and matching.type == LabelModifierType.Include:
        return named
    return left


def _is_scalar(node: Any) -> bool:
    if isinstance(node, (ParenExpr, UnaryExpr)):
        return _is_scalar(node.expr)
    if isinstance(node, BinaryExpr):
        return _is_scalar(node.lhs) and _is_scalar(node.rhs)
    return isinstance(node, NumberLiteral) or (isinstance(node, Call) and node.func.return_type == ValueType.Scalar)


def _with(many: Labels, extra: frozenset[str], one: Labels) -> Labels:
    _require(extra, one, "the one side of a join has no label")
    return None if many is None else many | extra


def _called(node: Call) -> Labels:
    vectors = [_labels(argument) for argument in node.args if not isinstance(argument, StringLiteral)]
    inner = next((labels for labels in vectors if labels != _NONE), _NONE)
    texts = [argument.val for argument in node.args if isinstance(argument, StringLiteral)]
    if node.func.name == "label_replace":
        made, _, source, _ = texts
        _require({source} - {""}, inner, "label_replace reads no label")
        return None if inner is None else inner | {made}
    return inner


def _require(named: frozenset[str] | set[str], labels: Labels, what: str) -> None:
    if labels is not None and not named <= labels:
        raise QueryError(f"{what} {', '.join(sorted(named - labels))}")
