"""Recordings of real H200s, idle, under full load and shared: sound boards, judged as the agent judges them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuwatch.device.gpu_thread import GpuThread
from gpuwatch.device.reader import hello, open_driver
from gpuwatch.device.readings import GpuReading, Tick
from gpuwatch.device.wire import ReaderOptions
from gpuwatch.health.board import HealthBoard
from gpuwatch.node import Node

FOLDER = Path(__file__).parent.parent / "recordings"
RECORDINGS = sorted(path for path in FOLDER.glob("*.json") if "answers" in json.loads(path.read_text()))


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.stem)
def test_a_real_board_is_ok(recording: Path) -> None:
    """Half an hour of what was recorded, whose last answers stay: no reason, also not for the power cap at full load."""
    options = ReaderOptions(replay=str(recording))
    driver = open_driver(options)
    driver.nvmlInit()
    count = driver.nvmlDeviceGetCount()
    now = 0.0
    readings: list[GpuReading] = []
    threads = [GpuThread(driver, index, options=options, emit=readings.append, clock=lambda: now) for index in range(count)]
    node = Node("node-1", "0", fast_seconds=10.0, medium_seconds=10.0, stall_seconds=5.0)
    node.apply(hello(driver, count), now, now)
    board = HealthBoard(read_seconds=10.0)
    while now < 1800.0:
        for thread in threads:
            thread.read_both_tiers()
        node.apply(Tick(readings=tuple(readings)), now, now)
        readings.clear()
        snapshot = board.judge(node.snapshot(now, now), now)
        assert [gpu.verdict and (gpu.verdict.state, gpu.verdict.reasons) for gpu in snapshot.gpus] == [("ok", ())] * count
        now += 10.0
