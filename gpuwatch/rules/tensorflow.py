"""Alerts for the owner of a TensorFlow job: why it wastes its GPUs, and what to change in the program.

They are about jobs whose processes say what they do (:mod:`gpuwatch.tensorflow`), and say more than the alerts about waste, which they
silence. Those look back over an hour; these go on for as long, or the weaker word would come when the cause is gone already.
"""

from __future__ import annotations

from typing import Final

from gpuwatch.rules.alert import Alert
from gpuwatch.rules.cause import CAUSE, HOST_SHARE, INPUT_SHARE, JOB_PHASE, POD, UNEQUAL
from gpuwatch.rules.recording import JOB_INFO, RATIO_NOW
from gpuwatch.rules.waste import GPUS
from gpuwatch.rules.words import DEVICE, JOB, THE_JOB, asked

_GROUP: Final = "gpuwatch-tensorflow"
_FOR: Final = "3m"
_KEEP: Final = "${underutilized_window}"
_THIS: Final = ("cluster", "namespace", "job_kind", "job_name")
_OF_THIS: Final = "{cluster=%q, namespace=%q, job_kind=%q, job_name=%q}"
_PODS_OF_THIS: Final = f"and on ({POD}) gpuwatch_job_gpu_info{_OF_THIS}"
_STEPS: Final = "rate(gpuwatch_tensorflow_step_duration_seconds_{part}[${{cause_window}}])"
_PERCENT: Final = "{{ .Value | humanizePercentage }}"
_STEP_TIME: Final = asked(
    f"sum({_STEPS.format(part='sum')} {_PODS_OF_THIS}) / (sum({_STEPS.format(part='count')} {_PODS_OF_THIS}) > 0)",
    *_THIS, *_THIS, each="A step takes {{ .Value | humanizeDuration }}.",
)  # fmt: skip
_INPUT: Final = asked(
    f'{JOB_PHASE}{_OF_THIS[:-1]}, phase="input"}}'.replace('"', '\\"'), *_THIS, each=f"It waits for its input {_PERCENT} of the time."
)
_USE: Final = asked(f"{RATIO_NOW}{_OF_THIS}", *_THIS, each=f"It uses {_PERCENT} of its GPUs.")


def _why(cause: str, value: str) -> str:
    """The value, for jobs with that cause whose processes say what they do."""
    return f'{value} and on ({JOB}) {CAUSE}{{cause="{cause}"}} and on ({JOB}) {JOB_PHASE}'


def _alert(name: str, expression: str, *, summary: str, description: str) -> Alert:
    return Alert(
        name=name, group=_GROUP, severity="info", for_=_FOR, keep_firing=_KEEP, subject="job", board="job",
        expression=expression, summary=summary, description=description,
    )  # fmt: skip


_LOST_DATA: Final = 'gpuwatch_gpu_ecc_errors_total{severity="uncorrected", scope="volatile"} > 0'
_ON_ITS_GPUS: Final = f"and on ({DEVICE}) gpuwatch_job_gpu_info{{namespace=%q, pod=%q}}"
_NOT_FINITE: Final = (
    f"max by ({JOB}, pod) (last_over_time({JOB_INFO}[10m])) "
    f"and on ({POD}) max by ({POD}) (last_over_time(gpuwatch_tensorflow_nonfinite_loss_timestamp_seconds[10m])) "
    "> time() - ${nonfinite_loss_age}"
)
"""By the time, since increase() does not see the first event of a series; also of a pod that ended with it."""
_SUSPECT: Final = asked(
    f"count by (node, gpu, model) ({_LOST_DATA} {_ON_ITS_GPUS})".replace('"', '\\"'), "namespace", "pod",
    each="GPU {{ .Labels.gpu }} ({{ .Labels.model }}) on {{ .Labels.node }} has uncorrected ECC errors: it may be the reason.",
)  # fmt: skip
_UNGUARDED: Final = asked(
    f'count by (node, gpu, model) (gpuwatch_gpu_info{{ecc!="enabled"}} {_ON_ITS_GPUS})'.replace('"', '\\"'), "namespace", "pod",
    each="GPU {{ .Labels.gpu }} ({{ .Labels.model }}) on {{ .Labels.node }} runs without ECC: a flipped bit would not be seen.",
)  # fmt: skip
_THE_POD: Final = f"The loss in pod {{{{ $labels.pod }}}} of {THE_JOB} became NaN or infinite."

TENSORFLOW: Final = (
    _alert(
        "TensorFlowInputBound", _why("input_bound", INPUT_SHARE),
        summary="A TensorFlow job waits for its input.",
        description=f"{THE_JOB} stands still {{{{ $value | humanizePercentage }}}} of the time until the next batch is there."
        f"{_STEP_TIME}{_USE}{GPUS} First: end the dataset with prefetch(tf.data.AUTOTUNE) and give map and interleave "
        "num_parallel_calls=tf.data.AUTOTUNE; then cache() what is decoded, and more CPU for the pod.",
    ),
    _alert(
        "TensorFlowHostBound", _why("host_bound", HOST_SHARE),
        summary="A TensorFlow job spends its time between the steps.",
        description=f"{THE_JOB} spends {{{{ $value | humanizePercentage }}}} of the time in callbacks, checkpoints and Python while its "
        f"GPUs stand still.{_STEP_TIME}{_USE}{GPUS} First: raise steps_per_execution in compile(), write checkpoints and summaries less "
        "often or in the background, and read the loss less often in a loop of your own.",
    ),
    _alert(
        "TensorFlowSmallWork", _why("small_work", RATIO_NOW),
        summary="The steps of a TensorFlow job are too small for its GPUs.",
        description=f"{THE_JOB} waits for nothing and uses {{{{ $value | humanizePercentage }}}} of the time of its GPUs, or little of "
        f"each: many small kernels.{_STEP_TIME}{_INPUT}{GPUS} First: a larger batch, jit_compile=True, then mixed_bfloat16 "
        "(mixed_float16 on T4 and V100) and steps_per_execution; or a smaller board or a MIG instance.",
    ),
    _alert(
        "TensorFlowImbalanced", _why("imbalanced", UNEQUAL),
        summary="One worker of a TensorFlow job is not like the others.",
        description='{{ if eq $labels.kind "use" }}'
        f"In {THE_JOB} pod {{{{ $labels.pod }}}} has a GPU that does much less than the others."
        "{{ else }}"
        f"{THE_JOB} waits for pod {{{{ $labels.pod }}}}, "
        '{{ if eq $labels.kind "input" }}which is late for its input.{{ else }}whose clock is below that of the others.{{ end }}{{ end }}'
        f"{_STEP_TIME}{GPUS} First: "
        '{{ if eq $labels.kind "use" }}look whether the program uses it at all: a tf.distribute strategy, or fewer GPUs.{{ end }}'
        '{{ if eq $labels.kind "input" }}look at CPU, disk and network of its node, and shard by record (AutoShardPolicy.DATA).{{ end }}'
        '{{ if eq $labels.kind "clock" }}look at heat, power and locked clocks there.{{ end }}',
    ),
    _alert(
        "TensorFlowCommunicationBound", _why("communication_bound", RATIO_NOW),
        summary="The GPUs of a TensorFlow job mostly exchange data.",
        description=f"The links of the GPUs of {THE_JOB} are nearly full while few multiprocessors work.{_STEP_TIME}{_INPUT}{GPUS} "
        "First: fewer exchanges: a larger batch or gradient_accumulation_steps in the optimizer, and mixed precision; keep the workers on "
        "GPUs with NVLink.",
    ),
    _alert(
        "TensorFlowNotStarted", f'max by ({JOB}) ({CAUSE}{{cause="not_started"}})',
        summary="A TensorFlow job traces and compiles and does not train.",
        description=f"{THE_JOB} trains for longer than ${{cause_window}}, and has made no step yet or mostly traces and compiles anew."
        f"{_STEP_TIME}{_USE}{GPUS} First: look at its log for retracing: give batches one shape (drop_remainder=True, padded_batch, "
        "input_signature); with several workers, look whether all of them are there.",
    ),
    Alert(
        name="TensorFlowNonfiniteLoss", group=_GROUP, severity="warning", subject="job", board="job",
        expression=f"({_NOT_FINITE}) and on ({POD}) ({JOB_INFO} and on ({DEVICE}) {_LOST_DATA})",
        summary="A loss is not finite where a GPU loses data.",
        description=f"{_THE_POD}{_SUSPECT} First: take the GPU out of use, and start again from a checkpoint of before.",
    ),
    Alert(
        name="TensorFlowNonfiniteLoss", group=_GROUP, severity="info", subject="job", board="job", expression=_NOT_FINITE,
        summary="The loss of a TensorFlow job is not a number.",
        description=f"{_THE_POD}{_SUSPECT}{_UNGUARDED} First: stop it, and go back to a checkpoint of before; with mixed_float16 use a "
        "LossScaleOptimizer, clip gradients, lower the learning rate.",
    ),
)  # fmt: skip
