"""Which framework a pod runs, and what told it: evidence from strong to weak, the first that speaks decides.

An owner or a label that an operator has set cannot be mistaken. An image or a variable can (TensorBoard beside PyTorch), so each answer
carries its reason, and a label or an annotation ``gpuwatch.io/framework`` on the pod overrules all of it.
"""

from __future__ import annotations

import re

from gpuwatch.device.readings import Struct
from gpuwatch.kube.labels import clean_text
from gpuwatch.kube.objects import Container, Pod
from gpuwatch.kube.tf_config import VARIABLE

OVERRIDE = "gpuwatch.io/framework"
REASONS = frozenset({"", "annotation", "container", "environment", "image", "label", "owner", "port"})
"""What may tell a framework; empty: nothing did."""


class Framework(Struct, frozen=True, kw_only=True):
    """A framework and the reason to believe it; both empty: unknown."""

    name: str = ""
    reason: str = ""


class Evidence(Struct, frozen=True, kw_only=True):
    """What tells one framework. Labels are (key, value) with an empty value for any."""

    name: str
    owner: str = ""
    """Kind of the owner in the group ``kubeflow.org``."""
    labels: tuple[tuple[str, str], ...] = ()
    serving_runtime: str = ""
    """Beginning of the names of KServe's runtimes."""
    image: re.Pattern[str]
    """One segment of the repository path."""
    hints: tuple[str, ...] = ()
    """Beginnings of variables that mostly this framework has. The last thing asked: images of others set some of TensorFlow's, too."""
    container: str
    port: str = ""


def _image(words: str) -> re.Pattern[str]:
    return re.compile(rf"(?:jupyter-|codeserver-)?(?:{words})(?:[-_].*)?", re.DOTALL)


_OPERATOR = "training.kubeflow.org/operator-name"
FRAMEWORKS = (
    Evidence(
        name="tensorflow",
        owner="TFJob",
        labels=(
            (_OPERATOR, "tfjob-controller"),
            (_OPERATOR, "tf-operator"),
            ("controller-name", "tf-operator"),
            ("tf-job-name", ""),
            ("tf-replica-type", ""),
        ),
        serving_runtime="kserve-tensorflow",
        image=_image("tensorflow|tf"),
        hints=("TF_FORCE_GPU_ALLOW_GROWTH", "TF_GPU_", "TF_CPP_MIN_LOG_LEVEL", "TF_XLA_FLAGS", "TF_ENABLE_", "TF_NUM_"),
        container="tensorflow",
        port="tfjob-port",
    ),
    Evidence(
        name="pytorch",
        owner="PyTorchJob",
        labels=((_OPERATOR, "pytorchjob-controller"), ("controller-name", "pytorch-operator"), ("pytorch-job-name", "")),
        serving_runtime="kserve-torch",
        image=_image("pytorch|torch|torchserve"),
        container="pytorch",
        port="pytorchjob-port",
    ),
    Evidence(
        name="xgboost",
        owner="XGBoostJob",
        labels=((_OPERATOR, "xgboostjob-controller"),),
        serving_runtime="kserve-xgb",
        image=_image("xgboost"),
        container="xgboost",
        port="xgboostjob-port",
    ),
    Evidence(
        name="paddle",
        owner="PaddleJob",
        labels=((_OPERATOR, "paddlejob-controller"),),
        serving_runtime="kserve-paddle",
        image=_image("paddle|paddlepaddle"),
        container="paddle",
    ),
    Evidence(
        name="jax",
        owner="JAXJob",
        labels=((_OPERATOR, "jaxjob-controller"),),
        image=_image("jax"),
        container="jax",
        port="jaxjob-port",
    ),
)


def framework_of(pod: Pod) -> Framework:
    """Return the framework that ``pod`` runs with what told it; both empty when nothing does."""
    if OVERRIDE in pod.labels:
        return Framework(name=_named(pod.labels[OVERRIDE]), reason="label")
    if OVERRIDE in pod.annotations:
        return Framework(name=_named(pod.annotations[OVERRIDE]), reason="annotation")
    for reason, name in (
        ("owner", _by_owner(pod)),
        ("label", _by_label(pod)),
        ("environment", _by_launcher(pod)),
        ("image", _by_image(pod)),
        ("container", next((known.name for item in pod.containers for known in FRAMEWORKS if item.name == known.container), "")),
        ("port", next((known.name for item in pod.containers for known in FRAMEWORKS if known.port and known.port in item.ports), "")),
        ("label", _by_application(pod)),
        ("environment", _by_hint(pod)),
    ):
        if name:
            return Framework(name=name, reason=reason)
    return Framework()


def _named(text: str) -> str:
    return clean_text(text.strip().lower())


def _by_owner(pod: Pod) -> str:
    if pod.owner is None or pod.owner.group != "kubeflow.org":
        return ""
    return next((known.name for known in FRAMEWORKS if known.owner == pod.owner.kind), "")


def _by_label(pod: Pod) -> str:
    """Labels of operators, and the runtime that KServe chose."""
    for known in FRAMEWORKS:
        if any(pod.labels.get(key) == value if value else key in pod.labels for key, value in known.labels):
            return known.name
    for key, value in pod.labels.items():
        if key.startswith("serving.kserve.io/"):
            for known in FRAMEWORKS:
                if known.serving_runtime and value.startswith(known.serving_runtime):
                    return known.name
    return ""


def _by_launcher(pod: Pod) -> str:
    """Variables that a launcher sets for one framework alone: ``TF_CONFIG``, and torchrun's ``PET_*``."""
    for container in pod.containers:
        if VARIABLE in container.environment:
            return "tensorflow"
        if any(variable.startswith("PET_") for variable in container.environment):
            return "pytorch"
    return ""


def _by_image(pod: Pod) -> str:
    return next(filter(None, (_framework_of_image(container) for container in pod.containers)), "")


def _framework_of_image(container: Container) -> str:
    """By the last segment of the repository that names one; a registry's host name, the tag and the digest say nothing."""
    *path, last = container.image.partition("@")[0].split("/")
    if path and ("." in path[0] or ":" in path[0]):
        del path[0]
    for segment in (last.partition(":")[0], *reversed(path)):
        for known in FRAMEWORKS:
            if known.image.fullmatch(segment):
                return known.name
    return ""


def _by_application(pod: Pod) -> str:
    told = {pod.labels.get(f"app.kubernetes.io/{key}", "") for key in ("name", "component", "part-of")}
    return next((known.name for known in FRAMEWORKS if known.name in told), "")


def _by_hint(pod: Pod) -> str:
    for container in pod.containers:
        for known in FRAMEWORKS:
            if known.hints and any(variable.startswith(known.hints) for variable in container.environment):
                return known.name
    return ""
