"""The six boards, and the files that Grafana loads them from."""

from __future__ import annotations

from typing import Final

from gpuwatch.dashboards.agent import AGENT_BOARD
from gpuwatch.dashboards.board import Board
from gpuwatch.dashboards.efficiency import EFFICIENCY_BOARD
from gpuwatch.dashboards.fleet import FLEET_BOARD
from gpuwatch.dashboards.job import JOB_BOARD
from gpuwatch.dashboards.mig import MIG_BOARD
from gpuwatch.dashboards.node import NODE_BOARD

BOARDS: Final[tuple[Board, ...]] = (FLEET_BOARD, JOB_BOARD, EFFICIENCY_BOARD, NODE_BOARD, MIG_BOARD, AGENT_BOARD)
FOLDERS: Final = ("dashboards/grafana", "deploy/helm/gpuwatch/files/dashboards")
"""For people and provisioning, and for the chart."""
SDK: Final = "grafana-foundation-sdk==0.0.21"
"""Exactly: an unpinned pip takes another line of the package, made for Grafana 10.1."""


class SdkMissingError(RuntimeError):
    """The SDK that draws the boards is not installed; the message says what to install."""


def board_files() -> dict[str, str]:
    """The JSON of each board, by path; twice the same.

    Raises:
        SdkMissingError: the SDK is not installed.
    """
    try:
        from gpuwatch.dashboards.style import draw  # noqa: PLC0415 (who does not draw needs no SDK)
    except ModuleNotFoundError as error:
        raise SdkMissingError(f"the boards are drawn with the Grafana SDK; install it: pip install {SDK}") from error
    drawn = {f"{board.uid}.json": draw(board) for board in BOARDS}
    return {f"{folder}/{name}": text for folder in FOLDERS for name, text in drawn.items()}
