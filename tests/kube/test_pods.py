"""Pods as the API server tells them: what is kept, what is left out, and that nothing odd in one makes another wrong."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.kube.objects import Owner, Pod
from gpuwatch.kube.pods import PodSource, decode_pod
from kube.apiserver import RECORDINGS, Clock, ScriptedServer, after, body, chunks, pod, reached

_RUN, _RUN_BEFORE = "a" * 64, "b" * 64


def decoded(item: dict[str, Any]) -> Pod:
    """Through JSON."""
    return decode_pod(json.dumps(item).encode())


def recorded() -> dict[str, Pod]:
    """The recorded list by pod name."""
    return {item["metadata"]["name"]: decoded(item) for item in json.loads((RECORDINGS / "pods-list.json").read_text())["items"]}


def test_recorded_training_job_is_whole() -> None:
    """Of a real TFJob's pod the owner, labels, container id and TF_CONFIG are kept."""
    chief = recorded()["resnet50-chief-0"]
    assert chief.owner == Owner(group="kubeflow.org", kind="TFJob", name="resnet50")
    assert chief.labels["training.kubeflow.org/replica-type"] == "chief"
    (container,) = chief.containers
    assert container.name == "tensorflow"
    assert json.loads(container.environment["TF_CONFIG"]) == {"task": {"type": "chief", "index": "0"}}
    assert [len(run) for run in container.ids] == [64]
    assert (chief.phase, chief.started) == ("Running", "2026-11-30T02:15:44Z")


def test_recorded_pods_of_other_kinds() -> None:
    """A value from elsewhere is no plain value; a sidecar among the init containers is a container; nothing needless is kept."""
    pods = recorded()
    assert len(pods) == 17
    assert pods["finetune-0-m62sr"].containers[0].environment == {}
    assert pods["finetune-0-m62sr"].annotations == {"batch.kubernetes.io/job-completion-index": "0"}
    assert [container.name for container in pods["sidecar"].containers] == ["main", "gpu-sidecar"]
    assert pods["weird-labels"].annotations == {}
    assert all(container.ids for known in pods.values() for container in known.containers)


def test_replayed_watch_ends_where_the_cluster_did(tmp_path: Path) -> None:
    """A recorded list and its recorded watch give the recorded end: a deleted worker is gone, a recreated notebook has its new UID."""
    with ScriptedServer() as server, reached(server, tmp_path) as api:
        listed = json.loads((RECORDINGS / "pods-list.json").read_bytes())
        lines = [json.loads(line) for line in (RECORDINGS / "pods-watch.jsonl").read_text().splitlines()]
        listed["metadata"]["resourceVersion"] = "560"
        clock = Clock()
        source = PodSource(api, "private-node", clock=clock, sleep=clock.sleep, chance=random.Random(1))  # noqa: S311 - a seed
        server.script("list", body(json.dumps(listed).encode()))
        server.script("watch", after(lambda: clock.sleep(600), chunks([json.dumps(line).encode() + b"\n" for line in lines])))
        source.watcher.follow()
        source.watcher.follow()
    uids = {known.name: known.uid for known in source.view.pods}
    assert "resnet50-worker-1" not in uids
    assert uids["notebook-ana-0"] == "3330c6a4-2416-4507-a541-70da9399e4df"
    assert next(known for known in source.view.pods if known.name == "serve-0").labels["phase"] == "two"
    assert server.requests[-1].query["resourceVersion"] == "617"
    assert source.rejected == 0


def test_pod_without_anything_is_a_pod() -> None:
    """Only UID and name are needed; lists and texts may be null, as Go writes empty ones."""
    bare = Pod(uid="u", namespace="", name="n")
    assert decoded({"metadata": {"uid": "u", "name": "n"}}) == bare
    nothing = {"labels": None, "annotations": None, "ownerReferences": None}
    nulls = {"containers": None, "initContainers": None}
    assert decoded({"metadata": {"uid": "u", "name": "n", **nothing}, "spec": nulls, "status": {"startTime": None}}) == bare


def test_ids_of_this_run_and_the_one_before() -> None:
    """Container ids come from every kind of container, without their scheme; what is no id is left out."""
    status = {
        "containerStatuses": [
            {
                "name": "main",
                "containerID": f"containerd://{_RUN}",
                "lastState": {"terminated": {"containerID": f"containerd://{_RUN_BEFORE}"}},
            }
        ],
        "initContainerStatuses": [{"name": "first", "containerID": f"cri-o://{_RUN_BEFORE}", "state": {"terminated": {}}}],
        "ephemeralContainerStatuses": [{"name": "debug", "containerID": "docker://short"}],
    }
    spec = {"containers": [{"name": "main"}], "initContainers": [{"name": "first"}], "ephemeralContainers": [{"name": "debug"}]}
    known = decoded({"metadata": {"uid": "u", "name": "n"}, "spec": spec, "status": status})
    assert {container.name: container.ids for container in known.containers} == {
        "main": (_RUN, _RUN_BEFORE),
        "first": (_RUN_BEFORE,),
        "debug": (),
    }


def test_environment_is_chosen_and_bounded() -> None:
    """Only variables that tell the workload are kept, in plain text and of bounded length; a password never is."""
    variables = [
        {"name": "PASSWORD", "value": "hunter2"},
        {"name": "RANK", "value": "3"},
        {"name": "WORLD_SIZE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "TF_FORCE_GPU_ALLOW_GROWTH", "value": "x" * 5000},
        {"name": "TF_CONFIG", "value": "x" * 50000},
        {"name": "PET_NNODES"},
        *({"name": f"TF_{number}", "value": ""} for number in range(500)),
    ]
    known = decoded({"metadata": {"uid": "u", "name": "n"}, "spec": {"containers": [{"name": "main", "env": variables}]}})
    environment = known.containers[0].environment
    assert environment["RANK"] == "3"
    assert not {"PASSWORD", "WORLD_SIZE", "PET_NNODES"} & set(environment)
    assert (len(environment["TF_FORCE_GPU_ALLOW_GROWTH"]), environment["TF_CONFIG"]) == (1024, "")
    assert len(environment) == 64


def test_controlling_owner_counts() -> None:
    """Of several owners the controller is the owner; the group stands without its version, and the core group is empty."""
    references = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "x"},
        {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train", "controller": True},
    ]
    assert decoded({"metadata": {"uid": "u", "name": "n", "ownerReferences": references}}).owner == Owner(
        group="batch.volcano.sh", kind="Job", name="train"
    )
    node = [{"apiVersion": "v1", "kind": "Node", "name": "node-a", "controller": True}]
    assert decoded({"metadata": {"uid": "u", "name": "n", "ownerReferences": node}}).owner == Owner(group="", kind="Node", name="node-a")


def test_only_a_mirror_pod_has_a_static_hash() -> None:
    """The hash counts where the kubelet's own annotation confirms it; a user's pod cannot claim the processes of a static one."""
    digest = "3a812333ea887cca6250fd050c16e2e9"
    both = {"kubernetes.io/config.hash": digest, "kubernetes.io/config.mirror": digest}
    assert decoded({"metadata": {"uid": "u", "name": "n", "annotations": both}}).static_hash == digest
    alone = {"kubernetes.io/config.hash": digest}
    assert decoded({"metadata": {"uid": "u", "name": "n", "annotations": alone}}).static_hash == ""


@pytest.mark.parametrize("place", ["annotations", "labels"])
@pytest.mark.parametrize(("value", "may"), [("true", True), ("false", False), ("True", False), ("", False), ("true " + "x" * 5000, False)])
def test_who_may_idle_says_true(place: str, value: str, may: bool) -> None:
    """The one word, in an annotation or in a label; anything else is no permission."""
    said = {"metadata": {"uid": "u", "name": "n", place: {"gpuwatch.io/idle-ok": value}}}
    assert decoded(said).idle_ok is may


def test_own_annotations_are_kept() -> None:
    """Annotations of gpuwatch and those that tell the workload are kept; others, which may be huge, are not."""
    given_ = {"gpuwatch.io/framework": "jax", "dag_id": "etl", "kubectl.kubernetes.io/last-applied-configuration": "{}" * 9999}
    assert decoded({"metadata": {"uid": "u", "name": "n", "annotations": given_}}).annotations == {
        "gpuwatch.io/framework": "jax",
        "dag_id": "etl",
    }


@pytest.mark.parametrize("node", ["", "Node-A", "a,metadata.namespace=x", "a\r\nX-Evil: 1", "-a", "a" * 254, "."])
def test_node_must_be_named(tmp_path: Path, node: str) -> None:
    """Without a node's name nothing is watched, least of all the whole cluster; nothing can be smuggled in by one."""
    with ScriptedServer() as server, reached(server, tmp_path) as api:
        with pytest.raises(ValueError, match=r"node name .*expected"):
            PodSource(api, node)
        assert server.requests == []


def test_two_thousand_pods_are_listed(tmp_path: Path) -> None:
    """A list far beyond what a node runs is taken in whole."""
    with ScriptedServer() as server, reached(server, tmp_path) as api:
        for number in range(2000):
            server.cluster.put(pod(number))
        clock = Clock()
        source = PodSource(api, "node-a", clock=clock, sleep=clock.sleep)
        source.watcher.follow()
    assert len(source.view.pods) == 2000
    assert source.view.state.up


_JUNK = st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.lists(st.integers(), max_size=2) | st.just({"name": 1})


def places(item: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place within a JSON value."""
    inner = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
    return [path, *(place for key, value in inner for place in places(value, (*path, key)))]


@given(st.data(), _JUNK)
def test_pod_with_junk_anywhere_is_a_pod_or_refused(data: st.DataObject, junk: object) -> None:
    """A real pod with anything in any one place is decoded, with texts where texts belong, or refused with the one expected error."""
    item: Any = json.loads((RECORDINGS / "pods-list.json").read_bytes())["items"][9]
    del item["metadata"]["managedFields"]
    place = data.draw(st.sampled_from(places(item)[1:]))
    parent = item
    for step in place[:-1]:
        parent = parent[step]
    parent[place[-1]] = junk
    with contextlib.suppress(msgspec.DecodeError):
        known = decoded(item)
        assert all(isinstance(text, str) for text in (known.uid, known.name, *known.labels.values(), *known.annotations.values()))
