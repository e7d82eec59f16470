"""What each action asks a person to do, in one place for the page, the terminal, events and the docs. Pure text."""

from __future__ import annotations

from typing import Final

from gpuwatch.snapshot import Action

_ERRANDS: Final[dict[Action, str]] = {
    "none": "nothing to do",
    "watch": "leave it in service, keep the kernel log and the output of nvidia-bug-report.sh, and open a case if it comes again",
    "restart_job": "start the job again; the GPU is not to blame",
    "drain": "let no new work start on it, and move what runs",
    "reset_gpu": "drain it, then run nvidia-smi --gpu-reset -i {gpu}; on V100 and T4 loading the driver anew does the same",
    "reboot_node": "drain the node and reboot it; power it off and on if that does not help",
    "inspect": "drain it and look at the hardware: seat, cables, airflow, power, the vendor's diagnostics",
}


def errand_of(action: Action, uuid: str = "") -> str:
    """What to do, as half a sentence. ``uuid``: of the GPU; its number may be another one inside a container."""
    return _ERRANDS[action].format(gpu=uuid or "UUID")


def sentence_of(action: Action, uuid: str = "") -> str:
    """The same as a whole sentence."""
    errand = errand_of(action, uuid)
    return f"{errand[0].upper()}{errand[1:]}."
