"""Every metric that gpuwatch exports, as plain data in the order in which it is shown.

The catalogue is the one source for HELP, TYPE and UNIT, for the tables in ``docs/metrics.md`` and for every check that a name or a label
is real. To add a metric, add a row here and one line to the module that yields its value (``gpu``, ``health``, ``links``, ``mig``,
``agent``). Names are public: renaming one breaks every dashboard that uses it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

UNITS = ("bytes_per_second", "bytes", "celsius", "hertz", "joules", "ratio", "seconds", "watts")
"""Base units; a metric with a unit ends in it (before ``_total``)."""

NODE_LABELS = ("node",)
GPU_LABELS = ("node", "gpu", "uuid", "model")
MIG_LABELS = (*GPU_LABELS, "mig_uuid", "profile", "gpu_instance", "compute_instance")
JOB_LABELS = (
    *(*GPU_LABELS, "mig_uuid", "profile", "namespace", "pod", "container"),
    *("job_kind", "job_name", "replica_type", "replica_index", "framework"),
)
"""After them come the pod labels that the operator chose."""


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One metric family."""

    name: str
    """With the prefix and, for a counter, ``_total``."""
    type: Literal["counter", "gauge"]
    """Facts (``_info``) are gauges whose value is always 1."""
    help: str
    """What it says and, where that matters, what it means when it is absent."""
    labels: tuple[str, ...]
    """In the order in which they are written."""
    unit: str
    """One of :data:`UNITS`, or empty for a count, a state or a fact."""
    group: str
    source: str
    """The NVML call or the part of gpuwatch that the number comes from."""

    @property
    def family(self) -> str:
        """Name without ``_total``: what OpenMetrics calls the metric family."""
        return self.name.removesuffix("_total")

    @property
    def documentation(self) -> str:
        """Text of the HELP line: the sentence and the source."""
        return f"{self.help} Source: {self.source}."


_Row = tuple[str, tuple[str, ...], str, str]
"""Name, labels of its own, help, source."""


def _unit(family: str) -> str:
    return next((unit for unit in UNITS if family.endswith(f"_{unit}")), "")


def _group(group: str, labels: tuple[str, ...], *rows: _Row) -> tuple[Metric, ...]:
    return tuple(
        Metric(
            name=name,
            type="counter" if name.endswith("_total") else "gauge",
            help=text,
            labels=(*labels, *own),
            unit=_unit(name.removesuffix("_total")),
            group=group,
            source=source,
        )
        for name, own, text, source in rows
    )


# A table is read by its columns: the formatter would put each cell on a line of its own.
# fmt: off
METRICS: tuple[Metric, ...] = (
    *_group("agent", NODE_LABELS,
        ("gpuwatch_build_info", ("version", "python", "simulated"),
         "1, with the version of gpuwatch and of Python. simulated is true where no real GPU is read.", "gpuwatch"),
        ("gpuwatch_up", (), "1 while the reader runs and at least one GPU was read in time, else 0.", "reader process"),
        ("gpuwatch_fault", ("reason",), "1, with the reason why gpuwatch_up is 0. Absent while it is 1.", "reader process"),
        ("gpuwatch_read_duration_seconds", ("tier",), "Longest of the last passes over the GPUs, by tier.", "reader process"),
        ("gpuwatch_last_read_timestamp_seconds", ("tier",), "Unix time of the newest complete pass, by tier.", "reader process"),
        ("gpuwatch_nvml_errors_total", ("call", "error"),
         "Failed NVML calls since the agent started. A call that the board does not support is not counted.", "reader process"),
        ("gpuwatch_nvml_rejected_values_total", ("field",),
         "Values outside their physical range, dropped instead of exported.", "reader process"),
        ("gpuwatch_reader_restarts_total", ("reason",), "Restarts of the process that reads the driver.", "supervisor"),
        ("gpuwatch_attribution_up", ("source",),
         "1 while a source of attribution answers, or the API server takes events or node_condition, else 0. Absent when switched off.",
         "gpuwatch"),
        ("gpuwatch_attribution_fault", ("source", "reason"), "1, with the reason why a source does not answer.", "gpuwatch"),
        ("gpuwatch_attribution_age_seconds", ("source",),
         "Age of the facts a source told last; they are used on while it is down.", "gpuwatch"),
        ("gpuwatch_kubernetes_events_total", ("result",),
         "Events about GPUs for pods and the node, by what became of them. Absent unless kubernetes.events is on.", "gpuwatch"),
        ("gpuwatch_unattributed_gpus", (), "GPUs and MIG instances without a holder.", "gpuwatch"),
        ("gpuwatch_unknown_devices", (), "Device ids that the kubelet has given out and NVML does not know.", "kubelet PodResources"),
        ("gpuwatch_xid_source_up", ("source",),
         "1 while a source of XIDs listens, else 0: only then do no XIDs mean that there were none.", "NVML event sets, /dev/kmsg"),
        ("gpuwatch_xid_source_fault", ("source", "reason"), "1, with the reason why a source of XIDs does not listen.", "gpuwatch"),
        ("gpuwatch_xid_log_lines_total", ("kind",),
         "Lines of the kernel log about GPUs and NVSwitches, by kind, before bursts are counted as one. overwritten: lost unread.",
         "/dev/kmsg"),
        ("gpuwatch_nvswitch_errors_total", ("sxid", "severity"),
         "Errors that NVSwitches of the node reported, by SXid number. At most one a second is counted for each switch and number.",
         "/dev/kmsg"),
        ("gpuwatch_series", (), "Series of GPUs, MIG instances and jobs in this exposition.", "gpuwatch"),
    ),
    *_group("identity", GPU_LABELS,
        ("gpuwatch_gpu_info",
         ("driver", "cuda", "vbios", "pci_bus_id", "serial", "board_part_number", "architecture", "compute_capability", "minor_number",
          "ecc", "mig_mode", "mig_mode_pending", "compute_mode", "persistence_mode"),
         "1, with the facts of a GPU. A label is empty where the board does not report the fact.", "NVML static queries"),
        ("gpuwatch_gpu_unattributed", ("reason",), "1, with the reason why no pod holds the GPU. Absent while one does.", "gpuwatch"),
        ("gpuwatch_gpu_up", (), "1 while the GPU answers in time, else 0. While it is 0 its readings are absent.", "reader process"),
        ("gpuwatch_gpu_fault", ("reason",), "1, with the reason why gpuwatch_gpu_up is 0. Absent while it is 1.", "reader process"),
        ("gpuwatch_gpu_processes", (),
         "Processes that have a context on the GPU. Absent where the driver does not list them.",
         "nvmlDeviceGetComputeRunningProcesses, GraphicsRunningProcesses and MPSComputeRunningProcesses"),
    ),
    *_group("use", GPU_LABELS,
        ("gpuwatch_gpu_utilization_ratio", (),
         "Share of time in which any kernel ran, however small. Absent with MIG on.", "nvmlDeviceGetUtilizationRates"),
        ("gpuwatch_gpu_busy_seconds_total", (),
         "Seconds of use: the utilisation summed over time by the agent.", "nvmlDeviceGetUtilizationRates"),
        ("gpuwatch_gpu_memory_activity_ratio", (),
         "Share of time in which memory was read or written. Absent with MIG on.", "nvmlDeviceGetUtilizationRates"),
        ("gpuwatch_gpu_engine_utilization_ratio", ("engine",),
         "Share of time in which a media engine was busy.",
         "nvmlDeviceGetEncoderUtilization, DecoderUtilization, JpgUtilization and OfaUtilization"),
        ("gpuwatch_gpu_sm_active_ratio", (),
         "Share of multiprocessors that had work, mean over time. Absent before Hopper.", "GPM metric 2"),
        ("gpuwatch_gpu_sm_occupancy_ratio", (),
         "Warps in flight as a share of what the multiprocessors can hold. Absent before Hopper.", "GPM metric 3"),
        ("gpuwatch_gpu_tensor_active_ratio", (),
         "Share of time in which a tensor core pipe was active. Absent before Hopper.", "GPM metric 5"),
        ("gpuwatch_gpu_pipe_active_ratio", ("pipe",),
         "Share of time in which an arithmetic pipe was active. Absent before Hopper.", "GPM metrics 4 and 6 to 13"),
        ("gpuwatch_gpu_dram_active_ratio", (),
         "Memory bandwidth in use as a share of the peak. Absent before Hopper.", "GPM metric 10"),
    ),
    *_group("memory", GPU_LABELS,
        ("gpuwatch_gpu_memory_total_bytes", (), "Memory of the GPU.", "nvmlDeviceGetMemoryInfo"),
        ("gpuwatch_gpu_memory_used_bytes", (),
         "Memory held by processes; what the driver reserves is apart where it is reported.", "nvmlDeviceGetMemoryInfo"),
        ("gpuwatch_gpu_memory_free_bytes", (), "Memory that can still be allocated.", "nvmlDeviceGetMemoryInfo"),
        ("gpuwatch_gpu_memory_reserved_bytes", (),
         "Memory held by driver and firmware. Absent on drivers that count it as used.", "nvmlDeviceGetMemoryInfo version 2"),
        ("gpuwatch_gpu_bar1_used_bytes", (), "BAR1 window in use, which maps GPU memory for the PCIe bus.", "nvmlDeviceGetBAR1MemoryInfo"),
    ),
    *_group("heat, power and clocks", GPU_LABELS,
        ("gpuwatch_gpu_temperature_celsius", ("sensor",),
         "Temperature of the GPU die and, on boards with HBM, of the memory.", "nvmlDeviceGetTemperature and field 82"),
        ("gpuwatch_gpu_temperature_limit_celsius", ("limit",),
         "Temperature at which the board slows down or shuts down.", "nvmlDeviceGetTemperatureThreshold"),
        ("gpuwatch_gpu_temperature_limit_offset_celsius", ("limit",),
         "Margin at which the board acts, on boards that tell this limit only so: slowdown -2 is two degrees beyond the board's limit.",
         "fields 193 to 196"),
        ("gpuwatch_gpu_temperature_margin_celsius", (),
         "Degrees left to the limit of the board. Not the difference from one sensor: the hottest part counts.",
         "nvmlDeviceGetMarginTemperature"),
        ("gpuwatch_gpu_power_watts", (),
         "Power draw: the mean of the last second on Ampere (except GA100) and newer, else momentary.", "nvmlDeviceGetPowerUsage"),
        ("gpuwatch_gpu_power_instant_watts", (), "Momentary power draw. Use the energy counter for means.", "field 186"),
        ("gpuwatch_gpu_power_limit_watts", ("limit",),
         "Power limits. enforced is the one in force now.",
         "nvmlDeviceGetEnforcedPowerLimit, PowerManagementLimit, DefaultLimit and LimitConstraints"),
        ("gpuwatch_gpu_energy_joules_total", (),
         "Energy used, continued by the agent when the driver starts again from zero.", "nvmlDeviceGetTotalEnergyConsumption"),
        ("gpuwatch_gpu_clock_hertz", ("clock",), "Clock now.", "nvmlDeviceGetClockInfo"),
        ("gpuwatch_gpu_clock_max_hertz", ("clock",), "Highest clock of the board.", "nvmlDeviceGetMaxClockInfo"),
        ("gpuwatch_gpu_performance_state", (), "Performance state: 0 is fastest, 15 slowest.", "nvmlDeviceGetPerformanceState"),
        ("gpuwatch_gpu_fan_speed_ratio", ("fan",),
         "Fan speed wanted by the driver as a share of the highest. Absent on passive boards.", "nvmlDeviceGetFanSpeed_v2"),
        ("gpuwatch_gpu_throttled_seconds_total", ("reason",),
         "Seconds with clocks held down, by reason: the driver counts where it can, else the agent samples.",
         "nvmlDeviceGetViolationStatus, policy fields, nvmlDeviceGetCurrentClocksEventReasons"),
        ("gpuwatch_gpu_throttle_active", ("reason",),
         "1 if clocks are held down for this reason now, else 0. software_power_cap is normal under load.",
         "nvmlDeviceGetCurrentClocksEventReasons"),
    ),
    *_group("health", GPU_LABELS,
        ("gpuwatch_gpu_ecc_errors_total", ("severity", "scope", "location"),
         "ECC errors since the driver loaded (volatile) or ever (aggregate). Location total only where the board tells no location.",
         "nvmlDeviceGetTotalEccErrors and MemoryErrorCounter"),
        ("gpuwatch_gpu_remapped_rows", ("severity",),
         "Memory rows replaced by spare ones, by severity of the errors. Absent before Ampere.", "nvmlDeviceGetRemappedRows"),
        ("gpuwatch_gpu_row_remap_pending", (), "1 if a row waits for a GPU reset to be replaced.", "nvmlDeviceGetRemappedRows"),
        ("gpuwatch_gpu_row_remap_failed", (), "1 if a row could not be replaced: no spare is left.", "nvmlDeviceGetRemappedRows"),
        ("gpuwatch_gpu_row_remap_banks", ("availability",),
         "Memory banks by how many spare rows they have left.", "nvmlDeviceGetRowRemapperHistogram"),
        ("gpuwatch_gpu_retired_pages", ("cause",),
         "Memory pages taken out of use, by cause. Absent from Ampere on.", "nvmlDeviceGetRetiredPages"),
        ("gpuwatch_gpu_retired_pages_pending", (),
         "1 if a page waits for a restart of the driver to be taken out of use.", "nvmlDeviceGetRetiredPagesPendingStatus"),
        ("gpuwatch_gpu_recovery_action", (),
         "What the driver asks for: 0 nothing, 1 reset the GPU, 2 reboot, 3 drain P2P, 4 drain and reset, 5 recover IMEX domain.",
         "field 230"),
        ("gpuwatch_gpu_health_state", ("state",),
         "1 for the state of the GPU, 0 for the others: ok, degraded (works with a flaw), failed (drain now), unknown (cannot be read).",
         "gpuwatch, docs/health.md"),
        ("gpuwatch_gpu_health_reason", ("reason", "action"),
         "1 for each reason why the state is not ok, with what to do. Absent while it is.", "gpuwatch, docs/health.md"),
        ("gpuwatch_gpu_xid_errors_total", ("xid", "category", "severity"),
         "XIDs of the driver about the GPU, from NVML and the kernel log, each once and at most one a second. Absent before the first.",
         "nvmlEventSetWait, /dev/kmsg"),
        ("gpuwatch_gpu_xid_last_timestamp_seconds", ("xid", "category", "severity"),
         "Unix time of the last XID of this number. Alert on its age: increase() does not see the first of a series.",
         "nvmlEventSetWait, /dev/kmsg"),
    ),
    *_group("links", GPU_LABELS,
        ("gpuwatch_gpu_pcie_link_generation", (),
         "PCIe generation now. Many boards lower it when idle.", "nvmlDeviceGetCurrPcieLinkGeneration"),
        ("gpuwatch_gpu_pcie_link_width", (), "PCIe lanes now.", "nvmlDeviceGetCurrPcieLinkWidth"),
        ("gpuwatch_gpu_pcie_link_generation_max", (), "Highest PCIe generation of board and slot.", "nvmlDeviceGetMaxPcieLinkGeneration"),
        ("gpuwatch_gpu_pcie_link_width_max", (), "Most PCIe lanes of board and slot.", "nvmlDeviceGetMaxPcieLinkWidth"),
        ("gpuwatch_gpu_pcie_replays_total", (), "PCIe packets sent again after a fault on the line.", "nvmlDeviceGetPcieReplayCounter"),
        ("gpuwatch_gpu_pcie_throughput_bytes_per_second", ("direction",),
         "PCIe traffic: rx to the GPU, tx from it.", "GPM metrics 20 and 21, or nvmlDeviceGetPcieThroughput before Hopper"),
        ("gpuwatch_gpu_nvlink_up", ("link",),
         "1 if the NVLink is up, else 0. Absent on boards without NVLink.", "nvmlDeviceGetNvLinkState"),
        ("gpuwatch_gpu_nvlink_bytes_total", ("direction",), "Data over all NVLinks: rx to the GPU, tx from it.", "fields 138 and 139"),
        ("gpuwatch_gpu_nvlink_errors_total", ("kind",), "NVLink errors over all links, by kind.", "fields 161 to 163; 38, 45, 52, 59"),
        ("gpuwatch_gpu_nvlink_link_errors_total", ("link", "kind"),
         "NVLink errors of each link; only with read.nvlink_errors_per_link.", "fields 161 to 163"),
        ("gpuwatch_gpu_nvlink_speed_bytes_per_second", (), "Speed of one NVLink in one direction.", "fields 90 and 164"),
        ("gpuwatch_gpu_fabric_healthy", (),
         "1 if the GPU has joined its NVSwitch fabric and no fault is flagged. Absent without a fabric.", "nvmlDeviceGetGpuFabricInfoV"),
    ),
    *_group("mig", MIG_LABELS,
        ("gpuwatch_mig_unattributed", ("reason",), "1, with the reason why no pod holds the instance. Absent while one does.", "gpuwatch"),
        ("gpuwatch_mig_info", (), "1 for each MIG instance that exists.", "nvmlDeviceGetMigDeviceHandleByIndex"),
        ("gpuwatch_mig_memory_total_bytes", (),
         "Memory of the GPU instance. Compute instances that share one show it once, on the lowest of them.", "nvmlDeviceGetMemoryInfo"),
        ("gpuwatch_mig_memory_used_bytes", (),
         "Memory in use in the GPU instance. Compute instances that share one show it once, on the lowest of them.",
         "nvmlDeviceGetMemoryInfo"),
        ("gpuwatch_mig_graphics_active_ratio", (),
         "Share of time in which the GPU instance was active. Absent before Hopper.", "GPM metric 1"),
        ("gpuwatch_mig_sm_active_ratio", (),
         "Share of multiprocessors of the GPU instance that had work. Absent before Hopper.", "GPM metric 2"),
        ("gpuwatch_mig_tensor_active_ratio", (),
         "Share of time in which a tensor core pipe of the GPU instance was active. Absent before Hopper.", "GPM metric 5"),
        ("gpuwatch_mig_dram_active_ratio", (),
         "Memory bandwidth in use as a share of the peak of the GPU instance. Absent before Hopper.", "GPM metric 10"),
        ("gpuwatch_mig_multiprocessors", (), "Multiprocessors of the instance.", "nvmlDeviceGetAttributes_v2"),
    ),
    *_group("job", JOB_LABELS,
        ("gpuwatch_job_gpu_info", ("queue", "framework_reason", "shared", "requested"),
         "1 while a container holds a GPU or MIG instance. shared: others do too. requested false: it was not given it, but uses it.",
         "kubelet PodResources, API server, /proc"),
        ("gpuwatch_job_gpu_idle_ok", (),
         "1 while a pod that says it may idle holds the device: annotation or label gpuwatch.io/idle-ok is true. Absent for all others.",
         "API server"),
        ("gpuwatch_job_gpu_allocated_seconds_total", (), "Seconds for which the device was held, busy or not.", "gpuwatch"),
        ("gpuwatch_job_gpu_busy_seconds_total", (),
         "Utilisation summed over the time of holding. On a shared device from the holder's own processes.",
         "gpuwatch_gpu_busy_seconds_total"),
        ("gpuwatch_job_gpu_energy_joules_total", (),
         "Energy of the GPU while held. Absent for MIG instances and shared GPUs: it cannot be split.", "gpuwatch_gpu_energy_joules_total"),
        ("gpuwatch_job_gpu_utilization_ratio", (),
         "Share of time in which a kernel of the holder ran. On a shared device from its own processes.",
         "nvmlDeviceGetUtilizationRates, GPM metric 1, nvmlDeviceGetProcessUtilization"),
        ("gpuwatch_job_gpu_memory_used_bytes", (),
         "Memory in use. On a shared device that of the holder's processes. TensorFlow maps nearly all by default.",
         "nvmlDeviceGetMemoryInfo, process lists"),
        ("gpuwatch_job_gpu_power_watts", (), "Power draw of the GPU. Absent for MIG instances and shared GPUs.", "nvmlDeviceGetPowerUsage"),
        ("gpuwatch_job_gpu_sm_active_ratio", (),
         "Share of multiprocessors that had work. Absent when shared, and before Hopper.", "GPM metric 2"),
        ("gpuwatch_job_gpu_tensor_active_ratio", (), "Share of time in which a tensor core pipe was active.", "GPM metric 5"),
        ("gpuwatch_job_gpu_nvlink_bytes_total", ("direction",), "Data over NVLink while held.", "gpuwatch_gpu_nvlink_bytes_total"),
    ),
)
# fmt: on


def metrics_by_name() -> dict[str, Metric]:
    """The catalogue by full name, in display order."""
    return {metric.name: metric for metric in METRICS}
