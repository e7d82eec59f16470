"""The simulated cluster: what a scenario's pods make kubelet, API server and kernel say, and what the real code makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster import attributed
from gpuwatch.agent import once
from gpuwatch.config import Settings, load
from gpuwatch.device.readings import Identity
from gpuwatch.device.simulated import scenario_names
from gpuwatch.device.simulated.gpu import build_gpus
from gpuwatch.device.simulated.scenario import ScenarioError, load_scenario, parse_scenario
from gpuwatch.device.wire import Simulation
from gpuwatch.kube.device_ids import parse_device_id
from gpuwatch.kube.jobs import job_of
from gpuwatch.kube.objects import Pod, Views
from gpuwatch.kube.simulated import SimulatedSources, simulated_sources
from gpuwatch.snapshot import Gpu, Snapshot

HEAD = "name: test\ndescription: A test.\n"
WITH_PODS = [name for name in scenario_names() if load_scenario(name).pods]
WRONG = [
    ("gpus: [{board: t4}]\npods: [{name: a, devices: ['1']}]", r"x\.yaml: pods\[0\]\.devices: '1'; expected a GPU from 0 to 0"),
    ("gpus: [{board: t4}]\npods: [{name: a, devices: ['GPU-1']}]", r"pods\[0\]\.devices: 'GPU-1'"),
    ("gpus: [{board: t4}]\npods: [{name: a}, {name: a}]", r"pods\[1\]: default/a stands twice"),
    ("gpus: [{board: t4}]\npods: [{name: a, from: 9, until: 3}]", r"pods\[0\]: from is 9\.0 and until is 3\.0"),
    ("gpus: [{board: t4}]\npods: [{name: a, tfjob: {name: j, type: master}}]", r"'master'"),
    ("gpus: [{board: t4}]\npods: [{name: a, device: ['0']}]", r"`device`"),
]


def views_of(body: str, t: float = 0.0) -> Views:
    """What the cluster of this scenario says at ``t``."""
    return SimulatedSources(parse_scenario((HEAD + body).encode()), lambda: t).view()


def pods_of(said: Views) -> dict[str, Pod]:
    """Pods by name."""
    assert said.pods is not None
    return {pod.name: pod for pod in said.pods.pods}


def seen(name: str, at: float) -> Snapshot:
    """A shipped scenario through the real reader, driver and attribution."""
    settings: Settings = load(Path("/dev/null"), environment={}, flags={"node_name": "node-1"})
    return once(settings, Simulation(scenario=name, at_seconds=at))


def held(snapshot: Snapshot) -> dict[tuple[str, str], str]:
    """(GPU index, with MIG behind it for an instance; pod) → kind of job, of every holder."""
    index = {gpu.identity.uuid: str(gpu.identity.index) for gpu in snapshot.gpus}
    return {(index[use.holder.gpu_uuid] + use.holder.mig_uuid[:3], use.holder.pod): use.holder.job.kind for use in snapshot.jobs}


@pytest.mark.parametrize("name", WITH_PODS)
def test_what_is_said_fits_together(name: str) -> None:
    """At any time each id has a form that plugins use, UIDs differ, and processes are of pods that exist or of none."""
    scenario = load_scenario(name)
    for t in (0.0, 20.0, 45.0, 90.0, 400.0):
        said = SimulatedSources(scenario, lambda t=t: t, now=lambda: 7.0).view()
        assert said.pods is not None
        assert said.processes is not None
        uids = [pod.uid for pod in said.pods.pods]
        assert len(set(uids)) == len(uids)
        assert {parse_device_id(one.device_id).kind for one in said.allocations.allocations} <= {"gpu", "mig"}
        assert {one.pod_uid for one in said.processes.owners.values()} <= {*uids, ""}
        assert {state.updated_at for state in (said.allocations.state, said.pods.state, said.processes.state)} == {7.0}
        gpus = [Gpu(identity=Identity(index=gpu.index, uuid=gpu.uuid), up=True) for gpu in build_gpus(scenario)]
        whole = {one.pod for one in said.allocations.allocations if parse_device_id(one.device_id).kind == "gpu"}
        ended = {pod.name for pod in said.pods.pods if pod.phase != "Running"}
        assert {one.pod for one in attributed(gpus, said).holders} == whole - ended


def test_no_pods_no_cluster() -> None:
    """A scenario that names no pods is a machine outside every cluster."""
    assert simulated_sources("idle", lambda: 0.0) is None
    assert simulated_sources("tfjob", lambda: 0.0) is not None


@pytest.mark.parametrize(("body", "message"), WRONG)
def test_wrong_pods_are_refused(body: str, message: str) -> None:
    """With the file, the place, the value and what was expected."""
    with pytest.raises(ScenarioError, match=message):
        parse_scenario((HEAD + body).encode(), file="x.yaml")


def test_a_replica_is_what_the_operator_makes() -> None:
    """Of a TFJob's replica the kind, name, type and index are told by its labels, and by TF_CONFIG alone where those are lost."""
    for kind in ("chief", "worker", "ps", "evaluator"):
        body = f"gpus: [{{board: t4}}]\npods: [{{name: j-{kind}-1, tfjob: {{name: j, type: {kind}, index: 1}}}}]"
        job = job_of(pods_of(views_of(body))[f"j-{kind}-1"])
        assert (job.kind, job.name, job.replica_type, job.replica_index) == ("TFJob", "j", kind, "1")
        assert (job.framework, job.framework_reason) == ("tensorflow", "owner")


def test_a_pod_may_say_that_it_may_idle() -> None:
    """With the annotation or label that a real pod would bear."""
    bodies = ('{name: a, annotations: {gpuwatch.io/idle-ok: "true"}}', '{name: b, labels: {gpuwatch.io/idle-ok: "true"}}', "{name: c}")
    known = pods_of(views_of(f"gpus: [{{board: t4}}]\npods: [{', '.join(bodies)}]"))
    assert {name: one.idle_ok for name, one in known.items()} == {"a": True, "b": True, "c": False}


def test_a_pod_made_again_has_a_new_uid() -> None:
    """Under the same name, with a new UID and a new container, and only from its time on."""
    body = "gpus: [{board: t4}]\npods: [{name: a, until: 10}, {name: a, from: 20}]"
    first, between, second = (pods_of(views_of(body, t)) for t in (0.0, 10.0, 20.0))
    assert between == {}
    assert first["a"].uid != second["a"].uid
    assert first["a"].containers[0].ids != second["a"].containers[0].ids
    assert first["a"].started < second["a"].started


def test_an_instance_that_does_not_exist_is_given_to_nobody() -> None:
    """Neither one beyond the layout, nor one of a GPU that is not in MIG mode; the pod is there without it."""
    body = "gpus: [{board: h100-sxm, mig: [1g.10gb]}, {board: h100-sxm}]\npods: [{name: a, devices: ['0/0', '0/3', '1/0']}]"
    said = views_of(body)
    assert [one.device_id[:4] for one in said.allocations.allocations] == ["MIG-"]
    assert list(pods_of(said)) == ["a"]


def test_shares_bear_the_number_of_their_replica() -> None:
    """As NVIDIA's device plugin writes them; their processes are those that the scenario names, not all on the GPU."""
    gpus = "gpus: [{board: t4, loads: [{kind: tiny}], holders: [{pid: 7, memory_share: 0.1}, {pid: 8, memory_share: 0.1}]}]"
    said = views_of(gpus + "\npods: [{name: a, devices: ['0::3'], pids: [8]}]")
    assert [one.device_id.partition("::")[2] for one in said.allocations.allocations] == ["3"]
    assert said.processes is not None
    assert {pid: bool(one.pod_uid) for pid, one in said.processes.owners.items()} == {7: False, 8: True}


def test_the_shipped_tfjob_is_tagged() -> None:
    """Chief and workers hold a GPU each under the job's labels, ps and evaluator none; the idle notebook is there; two GPUs are free."""
    snapshot = seen("tfjob", 30.0)
    roles = {(use.holder.job.name, use.holder.job.replica_type, use.holder.job.replica_index) for use in snapshot.jobs}
    assert roles == {("gpt", "chief", "0"), *(("gpt", "worker", str(number)) for number in range(4)), ("bob", "", "")}
    assert all(use.power_watts for use in snapshot.jobs)
    assert snapshot.kubernetes is not None
    assert [one.reason for one in snapshot.kubernetes.unattributed] == ["not_allocated", "not_allocated"]


def test_the_shipped_shared_gpu_is_split() -> None:
    """Each share has its own process and memory and no power; the guest did not ask; the GPU of the pod that is over is free."""
    snapshot = seen("shared-gpu", 30.0)
    uses = {use.holder.pod: use for use in snapshot.jobs}
    assert {name: use.holder.pids for name, use in uses.items()} == {
        "score-a-5c7d9-2xk8f": (4600,),
        "score-b-6b8f4-m4t2w": (4601,),
        "carol-0": (),
        "debug": (4602,),
    }
    assert all(use.holder.shared and use.power_watts is None for use in snapshot.jobs)
    assert [use.holder.pod for use in snapshot.jobs if not use.holder.requested] == ["debug"]
    assert (uses["score-a-5c7d9-2xk8f"].memory_used_bytes or 0) > (uses["score-b-6b8f4-m4t2w"].memory_used_bytes or 0) > 0
    assert uses["carol-0"].memory_used_bytes is None
    assert snapshot.kubernetes is not None
    assert [one.reason for one in snapshot.kubernetes.unattributed] == ["pod_ended"]


def test_m5_instances_and_whole_gpus_side_by_side() -> None:
    """Each MIG pod has its instance with its profile, whole GPUs their pods, and nobody holds a GPU in MIG mode as a whole."""
    snapshot = seen("mixed-fleet", 30.0)
    on_mig = {use.holder.pod: use.holder.profile for use in snapshot.jobs if use.holder.mig_uuid}
    assert on_mig == {"classifier-predictor-7d9f8b6c5-x2k4q": "3g.40gb", "etl-tune-0": "2g.20gb", "alice-0": "1g.10gb"}
    assert {pod for place, pod in held(snapshot) if place == "1"} == {"resnet-chief-0"}
    assert not [pod for place, pod in held(snapshot) if place == "0"]
