"""Every value of the rules that an operator may change. What the verdict of a GPU knows too comes from its policy, not from here."""

from __future__ import annotations

from typing import Final

from gpuwatch.health.policy import POLICY, window
from gpuwatch.rules.alert import Threshold

DOCUMENTS: Final = "https://github.com/gpuwatch/gpuwatch/blob/main/docs/alerts"


def prometheus_duration(seconds: float) -> str:
    """As Prometheus writes a whole number of seconds: ``90s``, ``10m``, ``6h``, ``7d``."""
    whole = round(seconds)
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if whole and whole % size == 0:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def _own(name: str, value: str, unit: str, why: str, change: str) -> Threshold:
    return Threshold(name=name, value=value, unit=unit, why=why, change=change)


def _from_policy(name: str) -> tuple[Threshold, ...]:
    """The value of a rule of the verdict, and its window."""
    rule = POLICY[name]
    found = []
    if rule.value is not None:
        found.append(Threshold(name=name, value=f"{rule.value:g}", unit=rule.unit, why=rule.why, change=rule.change))
    if rule.window_seconds is not None:
        span = prometheus_duration(window(name))
        found.append(Threshold(name=f"{name}_window", value=span, unit="duration", why=rule.why, change=rule.change))
    return tuple(found)


_POLICY = (
    "gpu_hung", "ecc_uncorrected", "ecc_corrected_storm", "sram_worn", "row_remap_spares_low", "row_remaps_many", "retired_pages_full",
    "retired_pages_many", "hardware_thermal", "hardware_thermal_lasting", "software_thermal", "power_brake",
    "memory_temperature", "nvlink_down", "nvlink_errors", "nvlink_crc_storm", "fabric", "pcie_width", "pcie_replays",
)  # fmt: skip
_SCRAPES_APART = "Every window must hold at least four scrapes; with an interval beyond a minute the five-minute ones must grow."

# fmt: off
THRESHOLDS: Final = (
    _own("job", "gpuwatch", "label", "The value of the label job under which Prometheus scrapes the agents.",
         "Set it to what your scrape configuration says."),
    _own("runbooks", DOCUMENTS, "address",
         "Where the runbooks are, without a slash at the end. The default is where the project means to publish them.",
         "A copy of docs/alerts of your own: until then, and where nobody can reach the Internet."),
    _own("grafana", "", "address", "Where Grafana is, without a slash at the end; empty gives links relative to it.",
         "The address that people open."),
    _own("read_age", "120", "seconds", "Reads come every second; two minutes are no hiccup.", "Raise it with read.fast_interval."),
    _own("missing_window", "6h", "duration", "A night shift sees it, and a GPU that was taken out on purpose is forgotten the same day.",
         "Lengthen it to be reminded for longer of a GPU that is gone."),
    _own("xid_age", "600", "seconds",
         "An XID is an event: ten minutes are enough for every evaluation and every restart of Prometheus to see it, "
         "and the state of the GPU stays.", "Raise it where notifications may be delayed for longer."),
    _own("idle_ratio", "0.02", "ratio", "A running job that uses less than 2 % of its GPUs waits for something or is forgotten.",
         "Raise it to hear of nearly idle jobs."),
    _own("idle_window", "30m", "duration", "Loading data, compiling and checkpoints take minutes, not half an hour.",
         "Lengthen it where jobs begin with long preparations. " + _SCRAPES_APART),
    _own("underutilized_ratio", "0.4", "ratio", "Below 40 % over an hour more than half of what was paid for is lost.",
         "Lower it where small models are many."),
    _own("underutilized_window", "1h", "duration", "Long enough to hold epochs with their validation and checkpoints.",
         "Lengthen it for jobs with phases of an hour."),
    _own("excused_ratio", "0.05", "ratio",
         "A GPU that was held down by heat or its supply for a twentieth of the time is not the job's fault.",
         "As the thermal thresholds."),
    _own("inefficient_busy_ratio", "0.8", "ratio", "Utilisation says only that some kernel ran.",
         "Lower it to look at half-busy jobs too."),
    _own("inefficient_sm_ratio", "0.15", "ratio",
         "Tiny kernels show 19 % utilisation with 0.2 % of the multiprocessors at work (measured).",
         "Lower it for inference with small batches."),
    _own("inefficient_power_ratio", "0.35", "ratio", "For boards without GPM: work that counts draws more than a third of the limit.",
         "Lower it for boards whose limit is far above their use."),
    _own("imbalance_ratio", "0.5", "ratio",
         "In synchronous training all workers are as busy as each other; one that is late for its input is far below the others.",
         "Lower it to see smaller differences."),
    _own("straggler_busy_ratio", "0.7", "ratio",
         "The others read 100 % while they wait; one that is late for its input read 32 % (measured).",
         "Raise it to see smaller delays."),
    _own("straggler_tensor_ratio", "0.75", "ratio",
         "Who is late for its input computes as much as the others; who computes less is another case.",
         "Lower it where the load of the workers differs by design."),
    _own("straggler_clock_ratio", "0.85", "ratio", "The others wait for the slowest clock.", "Raise it to see smaller differences."),
    _own("memory_held_bytes", "2147483648", "bytes", "Contexts of monitoring tools hold less than 2 GiB.", "Lower it for small boards."),
    _own("queue_window", "30m", "duration", "Schedulers and autoscalers need minutes to place a job.",
         "Lengthen it where nodes start slowly."),
    _own("cause_window", "10m", "duration",
         "A cause is to be known within a quarter of an hour, and not while a job loads and compiles.",
         "Lengthen it for jobs with epochs of many minutes. " + _SCRAPES_APART),
    _own("compile_ratio", "0.5", "ratio", "Tracing and compiling are over after minutes; a job that does little else begins anew and anew.",
         "Raise it where large models are compiled for long."),
    _own("held_idle_bytes", "268435456", "bytes", "A CUDA context alone takes more; an idle driver takes less.",
         "Raise it to let small contexts be."),
    _own("late_input_ratio", "0.25", "ratio",
         "Workers that read equal shards wait equally; one that waits for a quarter of the time more is late.",
         "Lower it to see smaller delays."),
    _own("input_bound_ratio", "0.25", "ratio", "A quarter of the time spent waiting for batches is worth a better pipeline.",
         "Lower it where GPUs are dear."),
    _own("host_bound_ratio", "0.25", "ratio", "Callbacks, logging and checkpoints take a few per cent in good loops.",
         "Raise it where checkpoints are many by need."),
    _own("communication_link_ratio", "0.5", "ratio",
         "Collectives come in bursts: all-reduces of 1 GiB without a pause fill 0.68 of what the links of two H200 carry.",
         "Lower it where all-reduces are small and many."),
    _own("communication_sm_ratio", "0.5", "ratio",
         "Above it at least half of the multiprocessors work beside the traffic, which is good use.",
         "Raise it to hear of jobs that overlap the two."),
    _own("nonfinite_loss_age", "600", "seconds",
         "A loss that became NaN is an event: ten minutes are enough for every evaluation to see it.",
         "Raise it where notifications may be delayed for longer."),
    *(threshold for name in _POLICY for threshold in _from_policy(name)),
)
# fmt: on
DEFAULTS: Final = {threshold.name: threshold.value for threshold in THRESHOLDS}
