"""Every form of cgroup path that clusters have, and the kernel's stat file."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.kube.procfiles import Place, ProcFileError, read_place, read_start
from kube.proctree import stat_line

RECORDED = Path(__file__).parents[1] / "recordings" / "kubernetes"
UID = "3330c6a4-2416-4507-a541-70da9399e4df"
SYSTEMD_UID = UID.replace("-", "_")
OUTER_UID = "11111111-2222-4333-8444-555555555555"
HASH = "3a812333ea887cca6250fd050c16e2e9"
BOX = "78e96884973b197b8c94da736a9b3763574b0605bf3ccd730c9d702940ec4bb9"
OUTER_BOX = "ab" * 32
SLICE = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SYSTEMD_UID}.slice"
NESTED_SLICE = f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{SYSTEMD_UID}.slice"
INSIDE = Place(pod_uid=UID, container_id=BOX)


@pytest.mark.parametrize(
    "path",
    [
        f"/kubepods/besteffort/pod{UID}/{BOX}",
        f"/kubepods/burstable/pod{UID}/{BOX}",
        f"/kubepods/pod{UID}/{BOX}",
        f"{SLICE}/cri-containerd-{BOX}.scope",
        f"/kubepods.slice/kubepods-pod{SYSTEMD_UID}.slice/cri-containerd-{BOX}.scope",
        f"{SLICE}/crio-{BOX}.scope",
        f"{SLICE}/crio-{BOX}.scope/container",
        f"/kubepods/burstable/pod{UID}/crio-{BOX}",
        f"{SLICE}/crio-conmon-{BOX}.scope",
        f"{SLICE}/docker-{BOX}.scope",
        f"{SLICE}/cri-containerd-{BOX}.scope/init.scope",
        f"/system.slice/containerd.service/kubepods-burstable-pod{SYSTEMD_UID}.slice:cri-containerd:{BOX}",
        f"{NESTED_SLICE}/cri-containerd-{BOX}.scope",
        f"/docker/{OUTER_BOX}/kubelet/kubepods/besteffort/pod{UID}/{BOX}",
        f"/kubepods/pod{OUTER_UID}/{OUTER_BOX}/kubelet/kubepods/pod{UID}/{BOX}",
        f"/../../pod{UID}/{BOX}",
        f"/../../../kubepods-besteffort.slice/kubepods-besteffort-pod{SYSTEMD_UID}.slice/cri-containerd-{BOX}.scope",
    ],
)
@pytest.mark.parametrize(
    "line", ["0::{}\n", "4:memory:{}\n", "9:name=systemd:{0}\n4:cpu,cpuacct:{0}\n0::{0}\n", "3:cpuset:/\n1:cpu:{}\n0::/\n"]
)
def test_pods_of_every_runtime(path: str, line: str) -> None:
    """Pod and container are found in each known form, with cgroup v1, v2 and both."""
    assert read_place(line.format(path)) == INSIDE


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (f"/kubepods/burstable/pod{HASH}/{BOX}", Place(pod_uid=HASH, container_id=BOX)),
        (f"/kubepods/burstable/pod{UID}", Place(pod_uid=UID)),
        (f"/docker/{OUTER_BOX}/kubelet/kubepods/pod{UID}", Place(pod_uid=UID)),
        (f"/../{BOX}", Place(container_id=BOX)),
        (f"/docker/{BOX}", Place(container_id=BOX)),
        (f"/system.slice/docker-{BOX}.scope", Place(container_id=BOX)),
        ("/", Place()),
        ("/../../../..", Place()),
        ("/user.slice/user-1000.slice/session-3.scope", Place()),
        ("/system.slice/sshd.service", Place()),
        ("/slurm/uid_1000/job_4711/step_0/task_0", Place()),
        (f"/kubepods/pod{UID}0/{BOX}", Place(container_id=BOX)),
        (f"/kubepods/pod{HASH}a", Place()),
        (f"/tripod{UID}", Place()),
        (f"/kubepods/pod{UID[:-1]}", Place()),
    ],
)
def test_other_places(path: str, place: Place) -> None:
    """Static pods, sandboxes without containers, bare processes, Slurm jobs; and what only resembles a pod is none."""
    assert read_place(f"0::{path}\n") == place


def test_recorded_processes() -> None:
    """Each process recorded on a real node is found in its own pod, and in no two containers at once."""
    recorded = json.loads((RECORDED / "proc-cgroups.json").read_text())
    uids: dict[str, set[str]] = {}
    for process in recorded:
        place = read_place(process["cgroup"])
        assert f"pod{place.pod_uid}/{place.container_id}" in process["cgroup"]
        uids.setdefault(process["pod"], set()).add(place.pod_uid)
    assert len(uids) > 10
    assert all(len(of_pod) == 1 for of_pod in uids.values())


def test_lines_that_name_two_pods_name_none() -> None:
    """Where controllers disagree on the pod, no guess is made."""
    with pytest.raises(ProcFileError, match="2 pods"):
        read_place(f"4:memory:/kubepods/pod{UID}/{BOX}\n0::/kubepods/pod{OUTER_UID}/{BOX}\n")


@pytest.mark.parametrize("text", ["", "\n", "0::", f"0::/kubepods/pod{UID}/{BOX}", "0:/x\n", "nonsense\n", "0::/a\n\n", "0::relative\n"])
def test_half_a_cgroup_file_is_no_answer(text: str) -> None:
    """A file that is cut off or of another form is refused: an unknown place is not the place outside all pods."""
    with pytest.raises(ProcFileError):
        read_place(text)


@given(st.integers(0, 2000))
def test_a_cut_file_never_tells_another_pod(length: int) -> None:
    """However a file is cut off, it tells the right pod, no pod, or that it is cut off."""
    text = f"9:name=systemd:{SLICE}/crio-{BOX}.scope\n1:cpu:{SLICE}/crio-{BOX}.scope\n0::{SLICE}/crio-{BOX}.scope\n"
    with contextlib.suppress(ProcFileError):
        assert read_place(text[:length]).pod_uid in {UID, ""}


ALPHABET = st.sampled_from(
    ["pod", "kubepods", UID, SYSTEMD_UID, HASH, BOX, "/", "-", "_", ".slice", ":", "0::/", "\n", "a", "\x0b", "\u2028"]
)


@given(st.one_of(st.binary().map(lambda raw: raw.decode(errors="replace")), st.lists(ALPHABET).map("".join)))
def test_any_text_is_a_place_in_it_or_an_error(text: str) -> None:
    """No text raises anything else, and a UID that comes out stands in the text."""
    with contextlib.suppress(ProcFileError):
        place = read_place(text)
        assert f"pod{place.pod_uid}" in text.replace("_", "-") or not place.pod_uid
        assert place.container_id in text
        assert re.fullmatch("([0-9a-f]{64})?", place.container_id)


@pytest.mark.parametrize("name", ["python3", "a b", "x) S 1 (y", "((", "))", "", "\n"])
def test_the_start_time_behind_any_name(name: str) -> None:
    """A process may call itself anything, also what looks like other fields."""
    assert read_start(stat_line(7, name=name, start=123456)) == 123456


@pytest.mark.parametrize("state", ["Z", "X"])
def test_a_process_that_has_ended_has_no_start(state: str) -> None:
    """A zombie has left its cgroup, so it must not be looked up there."""
    assert read_start(stat_line(7, state=state)) is None


@given(st.integers(0, 300))
def test_a_cut_stat_file_never_tells_another_start(length: int) -> None:
    """A start time that may be cut off is not believed."""
    with contextlib.suppress(ProcFileError):
        assert read_start(stat_line(7, start=987654321)[:length]) == 987654321


@given(st.one_of(st.text(), st.integers(0, 10**5000).map(lambda start: f"1 (a) S{' 0' * 18} {start:x} 0 0\n")))
def test_any_stat_text_is_a_number_or_an_error(text: str) -> None:
    """No text raises anything else."""
    with contextlib.suppress(ProcFileError):
        assert (read_start(text) or 0) >= 0
