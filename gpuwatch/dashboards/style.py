"""The house style: how a board looks in Grafana. The only module that calls the SDK, so that another way to write JSON is one file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, Protocol

from grafana_foundation_sdk.builders import bargauge, common, dashboard, stat, statetimeline, statushistory, table, text, timeseries
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as shape
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from gpuwatch.dashboards.board import Annotation, Board, Colour, Column, Link, Mark, Panel, Row, Step, Variable

TAG: Final = "gpuwatch"
COLUMNS: Final = 24
_SOURCE: Final = shape.DataSourceRef(type_val="prometheus", uid="${datasource}")
_HUES: Final[dict[Colour, str]] = {
    "green": "green", "orange": "orange", "red": "red", "blue": "blue", "purple": "purple", "yellow": "super-light-yellow", "text": "text",
}  # fmt: skip
_ROW_HEIGHT: Final = 1


class _Shown(Protocol):
    """What the builders of all panels have in common."""

    def build(self) -> model.Panel: ...


def draw(board: Board) -> str:
    """The board as Grafana's classic JSON, sorted, with a line feed at the end."""
    made = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.question)
        .tags([TAG])
        .readonly()
        .timezone("browser")
        .refresh("1m")
        .time(f"now-{board.span}", "now")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .link(_other_boards())
        .variables([_source_variable(), *map(_variable, board.variables)])
        .annotations([_annotation(one) for one in board.annotations])
    )
    built = made.build()
    built.panels = _placed(board.rows)
    tree = json.loads(json.dumps(built, cls=JSONEncoder))
    return json.dumps(_tidy(tree), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _placed(rows: Iterable[Row]) -> list[model.Panel | model.RowPanel]:
    """Panels from left to right and rows from top to bottom, with ids in that order."""
    placed: list[model.Panel | model.RowPanel] = []
    number, top = 0, 0
    for row in rows:
        number += 1
        heading = dashboard.Row(row.title).id(number).collapsed(row.collapsed).build()
        heading.grid_pos = model.GridPos(x=0, y=top, w=COLUMNS, h=_ROW_HEIGHT)
        inside = heading.panels if row.collapsed else placed
        placed.append(heading)
        left, top, height = 0, top + _ROW_HEIGHT, 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                left, top, height = 0, top + height, 0
            number += 1
            made = _panel(panel)
            made.id_val, made.grid_pos = number, model.GridPos(x=left, y=top, w=panel.width, h=panel.height)
            inside.append(made)
            left, height = left + panel.width, max(height, panel.height)
        top += height
    return placed


def _tidy(tree: dict[str, Any]) -> dict[str, Any]:
    """Without what newer Grafanas alone know and older ones would carry along."""
    for one in [*tree["links"], *tree["annotations"]["list"]]:
        one.pop("placement", None)
    return tree


def _other_boards() -> dashboard.DashboardLink:
    kind = model.DashboardLinkType.DASHBOARDS
    return dashboard.DashboardLink("gpuwatch").type(kind).tags([TAG]).as_dropdown(True).include_vars(True).keep_time(True)


def _source_variable() -> dashboard.DatasourceVariable:
    return dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")


def _variable(variable: Variable) -> dashboard.QueryVariable:
    query = f"label_values({variable.selector}, {variable.label})"
    made = (
        dashboard.QueryVariable(variable.name)
        .label(variable.title)
        .datasource(_SOURCE)
        .definition(query)
        .query({"query": query, "refId": variable.name})
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.NATURAL_ASC)
        .multi(variable.several)
        .include_all(variable.several)
    )
    if variable.several:
        # ".*" also matches series that lack the label.
        made = made.all_value(".*").current(model.VariableOption(selected=True, text="All", value="$__all"))
    return made


def _annotation(annotation: Annotation) -> dashboard.AnnotationQuery:
    return (
        dashboard.AnnotationQuery()
        .name(annotation.name)
        .datasource(_SOURCE)
        .enable(True)
        .icon_color(_HUES[annotation.colour])
        .expr(annotation.expression)
        .step("1m")
        .title_format(annotation.name)
        .text_format(annotation.text)
        .use_value_for_time(annotation.at_value)
    )


def _panel(panel: Panel) -> model.Panel:
    kinds: dict[str, Any] = {
        "stat": _stat, "graph": _graph, "table": _table, "timeline": _timeline, "grid": _grid, "bars": _bars, "text": _text,
    }  # fmt: skip
    shown = kinds[panel.kind](panel).title(panel.title).description(panel.description)
    if panel.kind == "text":
        return _built(shown)
    shown = shown.datasource(_SOURCE).no_value(panel.empty)
    if panel.kind != "table":
        shown = _valued(panel, shown)
    for number, query in enumerate(panel.queries):
        target = Dataquery().expr(query.expression).ref_id(reference(number)).legend_format(query.legend)
        target = target.instant() if panel.kind in ("stat", "table", "bars") else target.range()
        shown = shown.with_target(target.format(PromQueryFormat.TABLE) if panel.kind == "table" else target)
        if query.colour is not None and panel.kind == "graph":
            shown = shown.override_by_name(query.legend, [_fixed(query.colour)])
    return _built(shown)


def _valued(panel: Panel, shown: Any) -> Any:  # noqa: ANN401 (the builders of panels have no type in common)
    """How the values of a panel look, where it has one kind of them."""
    shown = shown.unit(panel.unit).thresholds(_thresholds(panel.steps))
    if panel.minimum is not None:
        shown = shown.min(panel.minimum)
    if panel.maximum is not None:
        shown = shown.max(panel.maximum)
    if panel.decimals is not None:
        shown = shown.decimals(panel.decimals)
    if panel.marks:
        shown = shown.mappings([_mapping(panel.marks)])
    if panel.links:
        shown = shown.data_links([_data_link(link) for link in panel.links])
    return shown


def _built(shown: _Shown) -> model.Panel:
    return shown.build()


def reference(number: int) -> str:
    """The letter by which a panel knows its query."""
    return chr(ord("A") + number)


def _stat(panel: Panel) -> stat.Panel:
    coloured = any(step.colour in ("green", "orange", "red") for step in panel.steps) or bool(panel.marks)
    return (
        stat.Panel()
        .reduce_options(_last())
        .graph_mode(shape.BigValueGraphMode.NONE)
        .color_mode(shape.BigValueColorMode.BACKGROUND if coloured else shape.BigValueColorMode.VALUE)
        .text_mode(shape.BigValueTextMode.VALUE)
        .justify_mode(shape.BigValueJustifyMode.CENTER)
    )


def _graph(panel: Panel) -> timeseries.Panel:
    below = len(panel.queries) == 1 and panel.width < COLUMNS // 2
    legend = common.VizLegendOptions().show_legend(True).calcs(["mean", "max"])
    if below:
        legend = legend.display_mode(shape.LegendDisplayMode.LIST).placement(shape.LegendPlacement.BOTTOM).calcs([])
    else:
        legend = legend.display_mode(shape.LegendDisplayMode.TABLE).placement(shape.LegendPlacement.RIGHT)
    made = (
        timeseries.Panel()
        .legend(legend)
        .tooltip(common.VizTooltipOptions().mode(shape.TooltipDisplayMode.MULTI).sort(shape.SortOrder.DESCENDING))
        .line_width(1)
        .fill_opacity(60 if panel.stacked else 5)
        .show_points(shape.VisibilityMode.NEVER)
        .span_nulls(False)
        .color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
    )
    if panel.stacked:
        made = made.stacking(common.StackingConfig().mode(shape.StackingMode.NORMAL).group("A"))
    if panel.steps:
        made = made.thresholds_style(common.GraphThresholdsStyleConfig().mode(shape.GraphThresholdsStyleMode.DASHED))
    return made


def _timeline(_: Panel) -> statetimeline.Panel:
    return (
        statetimeline.Panel()
        .show_value(shape.VisibilityMode.AUTO)
        .merge_values(True)
        .row_height(0.85)
        .fill_opacity(70)
        .line_width(0)
        .legend(common.VizLegendOptions().show_legend(False).display_mode(shape.LegendDisplayMode.LIST))
        .color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
    )


def _grid(_: Panel) -> statushistory.Panel:
    return (
        statushistory.Panel()
        .show_value(shape.VisibilityMode.NEVER)
        .row_height(0.9)
        .fill_opacity(80)
        .legend(common.VizLegendOptions().show_legend(False).display_mode(shape.LegendDisplayMode.LIST))
        .max_data_points(60)
        .color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.CONTINUOUS_BL_PU))
    )


def _bars(_: Panel) -> bargauge.Panel:
    return (
        bargauge.Panel()
        .reduce_options(_last())
        .orientation(shape.VizOrientation.HORIZONTAL)
        .display_mode(shape.BarGaugeDisplayMode.BASIC)
        .color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
    )


def _text(panel: Panel) -> text.Panel:
    return text.Panel().content(panel.content)


def _table(panel: Panel) -> table.Panel:
    made = table.Panel().cell_height(shape.TableCellHeight.SM).show_header(True)
    if panel.sort:
        order = common.TableSortByFieldState().display_name(panel.sort.removeprefix("-")).desc(panel.sort.startswith("-"))
        made = made.sort_by([order])
    several = len(panel.queries) > 1
    if several:
        made = made.with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
    fields = {column.title: name for column in panel.columns for name in _fields(panel, column)}
    hidden = [_value(number, several=several) for number, query in enumerate(panel.queries) if not query.column]
    arrange = {
        "excludeByName": dict.fromkeys(["Time", *hidden], True),
        "indexByName": {name: place for place, name in enumerate(fields.values())},
        "renameByName": {name: title for title, name in fields.items()},
    }
    made = made.with_transformation(model.DataTransformerConfig(id_val="organize", options=arrange))
    for column in panel.columns:
        made = made.override_by_name(column.title, _looks(column))
    return made


def _fields(panel: Panel, column: Column) -> list[str]:
    """The name under which Grafana finds the column in the answers."""
    if column.label:
        return [column.label]
    places = [number for number, query in enumerate(panel.queries) if query.column == column.title]
    return [_value(number, several=len(panel.queries) > 1) for number in places]


def _value(number: int, *, several: bool) -> str:
    """Grafana's name for the values of a query."""
    return f"Value #{reference(number)}" if several else "Value"


def _looks(column: Column) -> list[model.DynamicConfigValue]:
    looks: list[tuple[str, object]] = []
    if column.unit:
        looks.append(("unit", column.unit))
    if column.decimals is not None:
        looks.append(("decimals", column.decimals))
    if column.width is not None:
        looks.append(("custom.width", column.width))
    if column.steps:
        looks += [("thresholds", _thresholds(column.steps).build()), ("color", {"mode": "thresholds"})]
    if column.marks:
        looks.append(("mappings", [_mapping(column.marks)]))
    if column.steps or any(mark.colour != "text" for mark in column.marks):
        looks.append(("custom.cellOptions", {"type": "color-text"}))
    if column.links:
        looks.append(("links", [_plain(_data_link(link)) for link in column.links]))
    return [model.DynamicConfigValue(id_val=name, value=value) for name, value in looks]


def _plain(link: dashboard.DashboardLink) -> dict[str, object]:
    """A link of a cell has a title and an address and nothing else."""
    made = link.build()
    return {"title": made.title, "url": made.url}


def _data_link(link: Link) -> dashboard.DashboardLink:
    kept = "${datasource:queryparam}&${cluster:queryparam}&${__url_time_range}"
    variables = "&".join(f"var-{variable}={_place(name)}" for variable, name in link.carries)
    return dashboard.DashboardLink(link.title).url(f"/d/gpuwatch-{link.board}?{variables}&{kept}")


def _place(name: str) -> str:
    """Where the value comes from: a column of the row (its title is in capitals), or a label of the series."""
    return f"${{__data.fields.{name}}}" if name[0].isupper() else f"${{__field.labels.{name}}}"


def _thresholds(steps: tuple[Step, ...]) -> dashboard.ThresholdsConfig:
    made = [model.Threshold(value=step.value, color=_HUES[step.colour]) for step in steps] or [model.Threshold(value=None, color="text")]
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(made)


def _mapping(marks: tuple[Mark, ...]) -> model.ValueMap:
    return model.ValueMap(
        options={
            mark.value: model.ValueMappingResult(text=mark.text, color=_HUES[mark.colour], index=place) for place, mark in enumerate(marks)
        }
    )


def _fixed(colour: Colour) -> model.DynamicConfigValue:
    return model.DynamicConfigValue(id_val="color", value={"mode": "fixed", "fixedColor": _HUES[colour]})


def _last() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"])
