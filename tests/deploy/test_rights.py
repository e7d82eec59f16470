"""What the chart asks of a cluster: each right only with the feature that needs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.helm import CHART, CI, Object, container_of, given, kind, objects, of_ci, only, pod_of, refusal, run

PODS = ("", "pods", ("list", "watch"))
SLICES = ("resource.k8s.io", "resourceslices", ("list", "watch"))
CLAIMS = ("resource.k8s.io", "resourceclaims", ("list", "watch"))
EVENTS = ("", "events", ("create",))
NODE_STATUS = ("", "nodes/status", ("patch",))
ALLOWED = {
    "prometheus-operator": {PODS, SLICES, EVENTS},
    "gke": {PODS, SLICES},
    "time-slicing": {PODS, SLICES},
    "mig-mixed": {PODS, SLICES},
    "dra": {PODS, SLICES, CLAIMS, NODE_STATUS},
    "no-api": set[object](),
    "tls-client-certificates": {PODS, SLICES},
}
LEAST: Object = {
    "runAsUser": 0,
    "runAsGroup": 0,
    "runAsNonRoot": False,
    "privileged": False,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def rights(found: list[Object]) -> set[object]:
    """Group, resource and verbs of every rule of every role."""
    return {
        (group, resource, tuple(rule["verbs"]))
        for role in kind(found, "ClusterRole") + kind(found, "Role")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


@pytest.mark.parametrize("name", CI)
def test_roles(name: str) -> None:
    """Each kind of cluster gives exactly the rights on its list, bound to the agent's account alone."""
    found = of_ci(name)
    assert rights(found) == ALLOWED[name]
    bindings = kind(found, "ClusterRoleBinding") + kind(found, "RoleBinding")
    assert len(bindings) == len(kind(found, "ClusterRole")) == bool(ALLOWED[name])
    for binding in bindings:
        account = pod_of(found)["serviceAccountName"]
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": "monitoring"}]
        assert binding["roleRef"]["name"] == only(found, "ClusterRole")["metadata"]["name"]


@pytest.mark.parametrize(("setting", "right"), [("resource_claims", CLAIMS), ("events", EVENTS), ("node_condition", NODE_STATUS)], ids=str)
def test_a_setting_brings_its_own_right_only(setting: str, right: object) -> None:
    """Switching a feature on adds the one right that it needs."""
    assert rights(objects()) == {PODS, SLICES}
    assert rights(objects("--set", f"config.kubernetes.{setting}=true")) == {PODS, SLICES, right}


@pytest.mark.parametrize("setting", ["api_server", "attribution"])
def test_no_api_server_no_token(setting: str) -> None:
    """Without the API server there is no role, and no token in the pod, whatever the service account says."""
    found = objects("--set", f"config.kubernetes.{setting}=never")
    assert rights(found) == set()
    assert pod_of(found)["automountServiceAccountToken"] is False
    assert only(found, "ServiceAccount")["automountServiceAccountToken"] is False


def test_the_token_is_mounted_by_the_pod_alone() -> None:
    """With the API server the pod asks for a token; other pods under the same account get none. The test's pod has none in any case."""
    found = objects()
    assert pod_of(found)["automountServiceAccountToken"] is True
    assert only(found, "ServiceAccount")["automountServiceAccountToken"] is False
    assert kind(found, "Pod")[0]["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize("name", sorted(set(CI) - {"gke"}))
def test_the_container_has_no_rights_on_its_node(name: str) -> None:
    """Root without capabilities, and a file system that cannot be written: what the kubelet's socket asks for, and nothing more."""
    pod, container = pod_of(of_ci(name)), container_of(of_ci(name))
    assert container["securityContext"] == LEAST
    assert pod["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert pod["hostNetwork"] is False
    assert pod["hostPID"] is (name == "time-slicing")
    paths = {volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    assert paths == {"/var/lib/kubelet/pod-resources"}
    assert all(mount["readOnly"] for mount in container["volumeMounts"])


def test_privileged_is_one_switch() -> None:
    """``privileged`` is what the API server takes: without a word on escalation and capabilities, which would contradict it."""
    for found in (of_ci("gke"), objects("--set", "privileged=true")):
        context = container_of(found)["securityContext"]
        assert context["privileged"] is True
        assert not {"allowPrivilegeEscalation", "capabilities"} & set(context)


def test_without_attribution_the_agent_is_nobody() -> None:
    """Without the kubelet's socket nothing of the node is mounted and the agent runs as nobody, fit for the level ``restricted``."""
    found = objects("--set", "config.kubernetes.attribution=never")
    context, pod = container_of(found)["securityContext"], pod_of(found)
    assert (context["runAsUser"], context["runAsNonRoot"], pod["securityContext"]["fsGroup"]) == (65534, True, 65534)
    assert not [volume for volume in pod["volumes"] if "hostPath" in volume]


def test_the_kernel_log_costs_one_capability() -> None:
    """``kernelLog.enabled`` adds SYSLOG and the device, read-only."""
    found = objects("--set", "kernelLog.enabled=true")
    assert container_of(found)["securityContext"] == LEAST | {"capabilities": {"drop": ["ALL"], "add": ["SYSLOG"]}}
    assert {"name": "kmsg", "mountPath": "/dev/kmsg", "readOnly": True} in container_of(found)["volumeMounts"]
    assert {"name": "kmsg", "hostPath": {"path": "/dev/kmsg", "type": "CharDevice"}} in pod_of(found)["volumes"]


def test_the_kubelets_root_is_a_setting() -> None:
    """The directory that is mounted is the one that the agent looks into."""
    root = "/var/snap/microk8s/common/var/lib/kubelet"
    found = objects("--set", f"config.kubernetes.kubelet_root={root}")
    [volume] = [volume for volume in pod_of(found)["volumes"] if volume["name"] == "pod-resources"]
    [mount] = [mount for mount in container_of(found)["volumeMounts"] if mount["name"] == "pod-resources"]
    assert volume["hostPath"]["path"] == mount["mountPath"] == f"{root}/pod-resources"


def test_own_security_context_is_put_over_ours(tmp_path: Path) -> None:
    """What a cluster asks for besides, such as a type for SELinux, is added; the rest stays."""
    added = {"seLinuxOptions": {"type": "spc_t"}}
    found = objects(*given({"securityContext": added}, tmp_path))
    assert container_of(found)["securityContext"] == LEAST | added


def test_a_capability_brings_no_other_back(tmp_path: Path) -> None:
    """One that is asked for comes to those of the chart: all others stay dropped, and the kernel log keeps its own."""
    wished = {"kernelLog": {"enabled": True}, "securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}}}
    capabilities = container_of(objects(*given(wished, tmp_path)))["securityContext"]["capabilities"]
    assert capabilities == {"drop": ["ALL"], "add": ["SYSLOG", "SYS_PTRACE"]}
    fewer = objects("--set", "securityContext.capabilities.drop={NET_RAW}")
    assert container_of(fewer)["securityContext"]["capabilities"] == {"drop": ["NET_RAW"]}


@pytest.mark.parametrize(
    ("values", "level"),
    [
        ("config.log.level=info", "privileged"),
        ("config.kubernetes.attribution=never", "restricted"),
        ("config.kubernetes.attribution=never,hostPID=true", "privileged"),
    ],
)
def test_notes_name_the_level_of_pod_security(values: str, level: str) -> None:
    """The notes name the label that the namespace needs, and how to see that the agent works."""
    done = run("helm4", "install", "gpuwatch", CHART, "--namespace", "gpus", "--dry-run=client", "--set", values)
    notes = done.stdout.partition("NOTES:")[2]
    assert f"pod-security.kubernetes.io/enforce={level}" in notes
    assert ("kubectl label namespace gpus" in notes) == (level == "privileged")
    for line in ("get daemonset gpuwatch", "exec daemonset/gpuwatch -- gpuwatch check", "helm test gpuwatch --namespace gpus"):
        assert line in notes


def test_rights_can_be_given_by_others() -> None:
    """Without a role and an account of its own the chart names the account it is told."""
    found = objects("--set", "rbac.create=false,serviceAccount.create=false,serviceAccount.name=gpu-reader")
    assert rights(found) == set()
    assert not kind(found, "ServiceAccount")
    assert pod_of(found)["serviceAccountName"] == "gpu-reader"


@pytest.mark.parametrize("told", ["events", "node_condition"])
def test_nobody_can_be_told_without_the_api_server(told: str) -> None:
    """What the agent would refuse at its start is refused before anything is made."""
    values = ("--set", f"config.kubernetes.{told}=true,config.kubernetes.api_server=never")
    assert f"config.kubernetes.{told} is true" in refusal(*values)
