"""The examples run for real, on the processor, and tell what their README says of them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from daemon import free_port
from deploy.helm import StrictLoader
from deploy.kinds import NEWEST, OLDEST, shape
from examples.programs import EXAMPLES, ROOT, Training, start

STEPS = 20
_REPLICA = shape(
    {"replicas": {"type": "integer", "minimum": 1}, "template": {"type": "object"}},
    {"restartPolicy": {"enum": ["Always", "OnFailure", "Never", "ExitCode"]}},
)
_TYPES = ("Chief", "Master", "Worker", "PS", "Evaluator")
TFJOB = shape(
    {
        "tfReplicaSpecs": {
            "type": "object",
            "additionalProperties": False,
            "properties": dict.fromkeys(_TYPES, _REPLICA),
            "minProperties": 1,
        }
    },
    {
        "runPolicy": shape(
            {},
            {
                "cleanPodPolicy": {"enum": ["All", "Running", "None"]},
                "ttlSecondsAfterFinished": {"type": "integer"},
                "activeDeadlineSeconds": {"type": "integer"},
                "backoffLimit": {"type": "integer"},
            },
        ),
        "successPolicy": {"enum": ["", "AllWorkers"]},
        "enableDynamicWorker": {"type": "boolean"},
    },
)
"""The fields of a TFJob of kubeflow.org/v1, as the training operator documents them."""


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Training]]:
    """All examples with a problem each, at once: most of their time is the import of TensorFlow."""
    place = tmp_path_factory.mktemp("examples")
    few = f"--steps={STEPS}"
    found = {
        "fit": start(
            EXAMPLES / "keras_fit.py", "--epochs=2", few, "--batch=8", "--width=16", "--slow-input=100",
            folder=place / "fit", port=free_port(), POD_NAME="fit-0",
        ),
        "loop": start(
            EXAMPLES / "custom_loop.py", few, "--checkpoint-every=10", "--slow-host=50", "--shapes=4", "--break-at=15",
            folder=place / "loop", POD_NAME="loop-0",
        ),
        "workers": start(
            EXAMPLES / "local_workers.py", "2", few, "--batch=8", "--slow-worker=1", "--slow-input=100",
            folder=place / "workers", POD_NAME="team",
        ),
    }  # fmt: skip
    try:
        yield found
    finally:
        for one in found.values():
            if one.process.poll() is None:
                one.process.kill()
                one.process.communicate()


def test_fit_is_scraped_while_it_waits_for_its_input(trainings: dict[str, Training]) -> None:
    """The endpoint answers during the training, without saying who it is; the end is in the text file, which does: most was waiting."""
    training = trainings["fit"]
    scraped = training.scrape()
    assert scraped.value("training") == 1
    assert "pod" not in {name for one in scraped.samples for name in one.labels}
    training.end()
    told = training.told("fit-0")
    assert told.value("training", namespace="research", pod="fit-0") == 0
    assert (told.value("steps_total"), told.value("examples_total")) == (2 * STEPS, 2 * STEPS * 8)
    assert told.seconds("input") > told.seconds("compute")
    assert {"map": "sequential", "prefetch": "false"}.items() <= told.labels("dataset_info").items()


def test_a_loop_of_ones_own(trainings: dict[str, Training]) -> None:
    """Python between the steps is told as host, every shape as a trace, and a loss that broke with its time."""
    assert "loss nan" in trainings["loop"].end()
    told = trainings["loop"].told("loop-0")
    assert (told.value("steps_total"), told.value("examples_total")) == (STEPS, STEPS * 32)
    assert told.seconds("host") >= 0.05 * (STEPS - 1)
    assert told.seconds("host") > told.seconds("input")
    assert told.value("traces_total") >= 4
    assert min(told.seconds(phase) for phase in ("compute", "compile", "validation", "checkpoint")) > 0
    assert told.value("nonfinite_losses_total") >= 1
    assert told.value("nonfinite_loss_timestamp_seconds") > told.value("last_step_timestamp_seconds") - 60


def test_the_late_one_of_two_workers(trainings: dict[str, Training]) -> None:
    """The worker with the slow input waits for it; the other waits as long within its step, and not for input."""
    trainings["workers"].end()
    waiting, late = (trainings["workers"].told(f"team-{index}") for index in range(2))
    for index, told in enumerate((waiting, late)):
        assert told.value("steps_total") == STEPS
        assert told.value("replicas") == 2
        assert {"task_type": "worker", "task_index": str(index)}.items() <= told.labels("info").items()
    assert late.seconds("input") > 2 * waiting.seconds("input")
    assert waiting.seconds("compute") > late.seconds("compute")


def tfjob() -> dict[str, Any]:
    """The manifest."""
    return dict(yaml.load((EXAMPLES / "tfjob.yaml").read_text(encoding="utf-8"), Loader=StrictLoader))  # noqa: S506 (a safe loader)


def test_the_tfjob_is_one() -> None:
    """Its fields are those of a TFJob, and it has what the training operator refuses to go without."""
    job = tfjob()
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "TFJob")
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", job["metadata"]["name"])
    jsonschema.validate(job["spec"], TFJOB)
    for replica in job["spec"]["tfReplicaSpecs"].values():
        containers = replica["template"]["spec"]["containers"]
        assert [one["name"] for one in containers].count("tensorflow") == 1
        assert all(one["image"] for one in containers)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_the_pods_of_the_tfjob_are_valid(version: str) -> None:
    """Its template is one of pods; they are found by Prometheus, and know who they are and where their agent is."""
    for kind, replica in tfjob()["spec"]["tfReplicaSpecs"].items():
        template = replica["template"]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": kind.lower(), **template["metadata"]}, "spec": template["spec"]}
        kubernetes_validate.validate(pod, version, strict=True)
        assert template["metadata"]["labels"]["gpuwatch.io/tensorflow"] == "true"
        [container] = template["spec"]["containers"]
        fields = {one["name"]: one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath") for one in container["env"]}
        assert {"POD_NAMESPACE": "metadata.namespace", "POD_NAME": "metadata.name", "HOST_IP": "status.hostIP"}.items() <= fields.items()
        assert 9839 in {one["containerPort"] for one in container["ports"]}


def flags_of(program: str) -> set[str]:
    """Those that it takes."""
    return set(re.findall(r'"(--[\w-]+)"', (EXAMPLES / program).read_text(encoding="utf-8")))


def commands() -> list[list[str]]:
    """Program and arguments of every call in the README, the manifest and the programs' own words."""
    [container] = tfjob()["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    found = [[Path(container["command"][1]).name, *container["args"]]]
    found.append(["multi_worker.py", *re.findall(r"--[\w-]+=\w+", (EXAMPLES / "tfjob.yaml").read_text(encoding="utf-8"))])
    texts = [path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.iterdir()) if path.suffix in (".py", ".md")]
    lines = [line for text in texts for line in re.findall(r"^(?:.* )?python (\w+\.py[^`\n]*)", text, re.MULTILINE)]
    found.extend(shlex.split(line, comments=True) for line in lines)
    return found


def test_every_command_is_one() -> None:
    """Each names a program that is there and flags that it takes."""
    assert len(commands()) > 8
    for program, *arguments in commands():
        taken = flags_of("multi_worker.py" if program == "local_workers.py" else program)
        assert {one.partition("=")[0] for one in arguments if one.startswith("--")} <= taken, program


def test_every_flag_of_the_readme_is_one() -> None:
    """The tables name flags of the program whose section they are in."""
    for section in (EXAMPLES / "README.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        program = section.partition(":")[0]
        if program.endswith(".py"):
            named = set(re.findall(r"^\| `(--[\w-]+)", section, re.MULTILINE))
            assert named <= flags_of(program), program


def test_the_image_has_what_it_copies() -> None:
    """Whatever the Dockerfile copies is there, and not held back by its own ignore file."""
    kept = {line.removeprefix("!") for line in (EXAMPLES / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")}
    for line in re.findall(r"^COPY (.+) \S+$", (EXAMPLES / "Dockerfile").read_text(), re.MULTILINE):
        for source in line.split():
            assert (ROOT / source).exists()
            assert source.partition("/")[0] in kept
