"""Tables for the benchmarks: plain columns, the measured beside the budget."""

from __future__ import annotations

from collections.abc import Sequence


def show(title: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print one table."""
    texts = [[cell if isinstance(cell, str) else f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in [list(heads), *texts]) for column in range(len(heads))]
    print(f"\n{title}")
    for row in [list(heads), ["-" * width for width in widths], *texts]:
        print(
            "  "
            + "  ".join(
                cell.ljust(width) if column == 0 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
        )


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of the values lie."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
