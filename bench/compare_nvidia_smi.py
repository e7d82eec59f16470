"""Does gpuwatch say what nvidia-smi says? Run on a machine with NVIDIA GPUs: ``python bench/compare_nvidia_smi.py [--load]``.

The daemon reads every 200 ms; while ``nvidia-smi -q`` runs, its snapshots are collected. Each value that nvidia-smi prints must lie
between the least and the greatest that gpuwatch saw around that moment, give or take the last digit nvidia-smi prints. ``--load`` runs
matrix products with PyTorch on every GPU meanwhile. Prints a table; exit status 1 when a value disagrees.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

PORT = 19838
LOAD = """
import torch, threading
def work(device):
    a = torch.randn(8192, 8192, dtype=torch.bfloat16, device=device)
    while True:
        for _ in range(20): b = a @ a
        torch.cuda.synchronize(device)
for index in range(torch.cuda.device_count()):
    threading.Thread(target=work, args=(f"cuda:{index}",)).start()
"""
MEBIBYTE = 1 << 20

Value = Callable[[dict[str, Any]], Any]


def fast(name: str, *keys: str, scale: float = 1.0) -> Value:
    """A number of the fast tier."""
    return lambda gpu: scaled(gpu["fast"].get(name), keys, scale)


def medium(name: str, *keys: str, scale: float = 1.0) -> Value:
    """A number of the medium tier."""
    return lambda gpu: scaled(gpu["medium"].get(name), keys, scale)


def identity(name: str, *keys: str, scale: float = 1.0) -> Value:
    """A number or text of the static tier."""
    return lambda gpu: scaled(gpu["identity"].get(name), keys, scale)


def scaled(value: Any, keys: tuple[str, ...], scale: float) -> Any:
    """Follow the keys; numbers are scaled, flags become 0 and 1."""
    for key in keys:
        value = None if value is None else value.get(key)
    return value * scale if isinstance(value, (int, float)) else value


def ecc(severity: str, scope: str, location: str) -> Value:
    """One ECC counter."""

    def find(gpu: dict[str, Any]) -> Any:
        counts = gpu["medium"]["health"].get("ecc_errors", [])
        wanted = {"severity": severity, "scope": scope, "location": location}
        return next((one["count"] for one in counts if wanted.items() <= one.items()), None)

    return find


def reason(name: str) -> Value:
    """1 when the reason is active."""
    return lambda gpu: int(name in gpu["fast"]["throttle_reasons"])


ROWS: list[tuple[str, Value]] = [
    ("Product Name", identity("model")),
    ("GPU UUID", identity("uuid")),
    ("Serial Number", identity("serial")),
    ("Minor Number", identity("minor_number")),
    ("VBIOS Version", identity("vbios")),
    ("Board Part Number", identity("board_part_number")),
    ("Persistence Mode", medium("persistence_mode")),
    ("MIG Mode/Current", medium("mig_enabled")),
    ("MIG Mode/Pending", medium("mig_pending")),
    ("GPU Recovery Action", medium("health", "recovery_action")),
    ("PCI/GPU Link Info/PCIe Generation/Max", identity("pcie_generation_max")),
    ("PCI/GPU Link Info/PCIe Generation/Current", medium("links", "pcie_generation")),
    ("PCI/GPU Link Info/Link Width/Max", identity("pcie_width_max")),
    ("PCI/GPU Link Info/Link Width/Current", medium("links", "pcie_width")),
    ("PCI/Replays Since Reset", medium("links", "pcie_replays")),
    ("Fan Speed", medium("fan_speed_ratio", "0", scale=100)),
    ("Performance State", fast("performance_state")),
    ("Clocks Event Reasons/Idle", reason("idle")),
    ("Clocks Event Reasons/Applications Clocks Setting", reason("application_clocks")),
    ("Clocks Event Reasons/SW Power Cap", reason("software_power_cap")),
    ("Clocks Event Reasons/HW Slowdown", reason("hardware_slowdown")),
    ("Clocks Event Reasons/HW Slowdown/HW Thermal Slowdown", reason("hardware_thermal")),
    ("Clocks Event Reasons/HW Slowdown/HW Power Brake Slowdown", reason("hardware_power_brake")),
    ("Clocks Event Reasons/Sync Boost", reason("sync_boost")),
    ("Clocks Event Reasons/SW Thermal Slowdown", reason("software_thermal")),
    ("Clocks Event Reasons Counters/SW Power Capping", medium("throttled_seconds", "power", scale=1e6)),
    ("Clocks Event Reasons Counters/SW Thermal Slowdown", medium("throttled_seconds", "software_thermal", scale=1e6)),
    ("Clocks Event Reasons Counters/HW Thermal Slowdown", medium("throttled_seconds", "hardware_thermal", scale=1e6)),
    ("Clocks Event Reasons Counters/HW Power Braking", medium("throttled_seconds", "hardware_power_brake", scale=1e6)),
    ("FB Memory Usage/Total", fast("memory", "total_bytes", scale=1 / MEBIBYTE)),
    ("FB Memory Usage/Reserved", fast("memory", "reserved_bytes", scale=1 / MEBIBYTE)),
    ("FB Memory Usage/Used", fast("memory", "used_bytes", scale=1 / MEBIBYTE)),
    ("FB Memory Usage/Free", fast("memory", "free_bytes", scale=1 / MEBIBYTE)),
    ("BAR1 Memory Usage/Used", medium("bar1_used_bytes", scale=1 / MEBIBYTE)),
    ("Utilization/GPU", fast("utilization_ratio", scale=100)),
    ("Utilization/Memory", fast("memory_activity_ratio", scale=100)),
    ("Utilization/Encoder", fast("engine_utilization_ratio", "encoder", scale=100)),
    ("Utilization/Decoder", fast("engine_utilization_ratio", "decoder", scale=100)),
    ("Utilization/JPEG", fast("engine_utilization_ratio", "jpeg", scale=100)),
    ("Utilization/OFA", fast("engine_utilization_ratio", "ofa", scale=100)),
    ("ECC Mode/Current", medium("health", "ecc_enabled")),
    ("ECC Errors/Volatile/SRAM Correctable", ecc("corrected", "volatile", "sram")),
    ("ECC Errors/Volatile/DRAM Correctable", ecc("corrected", "volatile", "dram")),
    ("ECC Errors/Volatile/DRAM Uncorrectable", ecc("uncorrected", "volatile", "dram")),
    ("ECC Errors/Aggregate/SRAM Correctable", ecc("corrected", "aggregate", "sram")),
    ("ECC Errors/Aggregate/DRAM Correctable", ecc("corrected", "aggregate", "dram")),
    ("ECC Errors/Aggregate/DRAM Uncorrectable", ecc("uncorrected", "aggregate", "dram")),
    ("Retired Pages/Single Bit ECC", medium("health", "retired_pages", "single_bit")),
    ("Remapped Rows/Correctable Error", medium("health", "remapped_rows", "corrected")),
    ("Remapped Rows/Uncorrectable Error", medium("health", "remapped_rows", "uncorrected")),
    ("Remapped Rows/Pending", medium("health", "row_remap_pending")),
    ("Remapped Rows/Remapping Failure Occurred", medium("health", "row_remap_failed")),
    ("Remapped Rows/Bank Remap Availability Histogram/Max", medium("health", "row_remap_banks", "max")),
    ("Remapped Rows/Bank Remap Availability Histogram/None", medium("health", "row_remap_banks", "none")),
    ("Temperature/GPU Current Temp", fast("temperature_celsius", "gpu")),
    ("Temperature/GPU T.Limit Temp", medium("temperature_margin_celsius")),
    ("Temperature/GPU Shutdown T.Limit Temp", identity("temperature_limit_offset_celsius", "shutdown")),
    ("Temperature/GPU Slowdown T.Limit Temp", identity("temperature_limit_offset_celsius", "slowdown")),
    ("Temperature/GPU Max Operating T.Limit Temp", identity("temperature_limit_offset_celsius", "gpu_max")),
    ("Temperature/Memory Current Temp", fast("temperature_celsius", "memory")),
    ("GPU Power Readings/Average Power Draw", fast("power_watts")),
    ("GPU Power Readings/Instantaneous Power Draw", fast("power_instant_watts")),
    ("GPU Power Readings/Current Power Limit", medium("power_limit_watts", "enforced")),
    ("GPU Power Readings/Default Power Limit", medium("power_limit_watts", "default")),
    ("GPU Power Readings/Min Power Limit", medium("power_limit_watts", "min")),
    ("GPU Power Readings/Max Power Limit", medium("power_limit_watts", "max")),
    ("Clocks/Graphics", fast("clock_hertz", "sm", scale=1e-6)),
    ("Clocks/SM", fast("clock_hertz", "sm", scale=1e-6)),
    ("Clocks/Memory", fast("clock_hertz", "memory", scale=1e-6)),
    ("Clocks/Video", fast("clock_hertz", "video", scale=1e-6)),
    ("Max Clocks/SM", identity("clock_max_hertz", "sm", scale=1e-6)),
    ("Max Clocks/Memory", identity("clock_max_hertz", "memory", scale=1e-6)),
    ("Fabric/State", medium("links", "fabric_healthy")),
]
WORDS = {"Enabled": 1, "Disabled": 0, "Active": 1, "Not Active": 0, "Yes": 1, "No": 0, "None": 0, "Completed": 1}
FREE_TO_MOVE = {"GPU T.Limit Temp": 2, "GPU Current Temp": 1, "Memory Current Temp": 1, "Reserved": 1, "Free": 1, "Used": 1, "Total": 1}
"""Rounding of nvidia-smi (it rounds memory up or down by a MiB), and sensors that move a degree between two reads."""


def main() -> int:
    """Collect both views and print the comparison."""
    load = subprocess.Popen([sys.executable, "-c", LOAD]) if "--load" in sys.argv else None
    time.sleep(25 if load else 3)
    options = [f"--set={pair}" for pair in ("read.fast_interval=200ms", "read.medium_interval=1s", f"server.port={PORT}")]
    daemon = subprocess.Popen([sys.executable, "-m", "gpuwatch", "run", *options])
    snapshots: list[dict[str, Any]] = []
    stop = threading.Event()
    collector = threading.Thread(target=collect, args=(snapshots, stop))
    try:
        time.sleep(4)
        collector.start()
        time.sleep(1.5)
        printed = subprocess.run(["nvidia-smi", "-q"], capture_output=True, text=True, check=True).stdout
        time.sleep(2.0)
    finally:
        stop.set()
        collector.join()
        daemon.terminate()
        if load:
            load.kill()
    disagreements = report(printed, snapshots)
    print(f"\n{disagreements} value(s) disagree; {len(snapshots)} snapshots")
    return 1 if disagreements else 0


def collect(snapshots: list[dict[str, Any]], stop: threading.Event) -> None:
    """Snapshots of the daemon until told to stop."""
    while not stop.wait(0.1):
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/api/v1/snapshot") as answer:
            snapshots.append(json.load(answer))


def report(printed: str, snapshots: list[dict[str, Any]]) -> int:
    """Print one row per value that nvidia-smi prints; returns how many disagree."""
    disagreements = 0
    for uuid, values in parse(printed):
        views = [gpu for snapshot in snapshots for gpu in snapshot["gpus"] if gpu["identity"]["uuid"] == uuid and gpu.get("medium")]
        print(f"\n{'nvidia-smi -q':62} {'prints':>14} {'gpuwatch from':>16} {'to':>16}")
        for path, value in ROWS:
            text = values.get(path, "N/A")
            seen = [value(view) for view in views]
            verdict = compare(path.rsplit("/", 1)[-1], text, seen)
            disagreements += verdict == "DIFFERS"
            low, high = ("absent", "absent") if None in seen else (min(seen), max(seen))
            print(f"{path:62} {text[:14]:>14} {short(low):>16} {short(high):>16} {verdict}")
    return disagreements


def short(value: Any) -> str:
    """At most 16 characters."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)[-16:]


def compare(name: str, text: str, seen: list[Any]) -> str:
    """``ok``, ``DIFFERS``, or ``-`` where nvidia-smi prints nothing."""
    if text in ("N/A", "Requested functionality has been deprecated"):
        return "-"
    if not seen or None in seen:
        return "DIFFERS"
    if isinstance(seen[0], str):
        return "ok" if {text} == set(seen) else "DIFFERS"
    number = WORDS[text] if text in WORDS else float(re.sub(r"^P|x$| .*$", "", text))
    slack = FREE_TO_MOVE.get(name, 0.5 if "." not in text else 0.01)
    if text.endswith(" W"):
        slack = max(slack, 0.01 * number)  # the draw moves from sample to sample
    return "ok" if min(seen) - slack <= number <= max(seen) + slack else "DIFFERS"


def parse(printed: str) -> Iterator[tuple[str, dict[str, str]]]:
    """(UUID, path → text) of each GPU; a path is the headings above a line, joined by slashes."""
    for block in re.split(r"^GPU [0-9A-F:.]+$", printed, flags=re.MULTILINE)[1:]:
        values: dict[str, str] = {}
        headings: list[tuple[int, str]] = []
        for line in filter(str.strip, block.splitlines()):
            indent = len(line) - len(line.lstrip())
            name, _, text = line.strip().partition(" : ")
            headings = [heading for heading in headings if heading[0] < indent] + [(indent, name.strip())]
            if text:
                values["/".join(heading for _, heading in headings)] = text.strip()
        yield values["GPU UUID"], values


if __name__ == "__main__":
    sys.exit(main())
