"""Owners of processes, from trees of plain files and from the kernel of this machine."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.kube.objects import ProcessOwner
from gpuwatch.kube.processes import FAULTS, ProcessSource
from kube.proctree import ProcTree, stat_line

UID, OTHER_UID = "3330c6a4-2416-4507-a541-70da9399e4df", "11111111-2222-4333-8444-555555555555"
BOX = "ab" * 32
IN_POD = f"0::/kubepods/pod{UID}/{BOX}\n"
IN_OTHER = f"0::/kubepods/pod{OTHER_UID}/{BOX}\n"


@pytest.fixture
def tree(tmp_path: Path) -> ProcTree:
    """The node's /proc."""
    return ProcTree(tmp_path / "proc")


def source_of(tree: ProcTree, *, max_reads: int = 256) -> ProcessSource:
    """A source on a machine that was never suspended, with 100 ticks a second: a start of 1000 is second 10."""
    return ProcessSource(tree.root, boot_offset=lambda: 0.0, ticks_per_second=100.0, max_reads=max_reads)


def test_a_process_in_a_pod(tree: ProcTree) -> None:
    """Pod and container of a process that holds a GPU."""
    tree.add(4711, cgroup=IN_POD)
    owners = source_of(tree).look_up([4711], 100.0)
    assert owners.owners == {4711: ProcessOwner(pid=4711, pod_uid=UID, container_id=BOX)}
    assert owners.state.up
    assert owners.state.updated_at == 100.0


def test_a_bare_process_has_an_owner_without_a_pod(tree: ProcTree) -> None:
    """A process outside every pod is known as such, which is not the same as unknown."""
    tree.add(4711, cgroup="0::/slurm/uid_1/job_2\n")
    assert source_of(tree).look_up([4711], 100.0).owners == {4711: ProcessOwner(pid=4711)}


def test_k13_a_process_that_has_ended_is_left_out(tree: ProcTree) -> None:
    """A PID without a process is no fault, and what was known of it is forgotten."""
    tree.add(4711, cgroup=IN_POD)
    tree.add(4712, cgroup=IN_POD)
    source = source_of(tree)
    source.look_up([4711, 4712], 100.0)
    tree.end(4712)
    owners = source.look_up([4711, 4712], 101.0)
    assert set(owners.owners) == {4711}
    assert owners.state.up


def test_k13_a_pid_that_passed_to_another_pod(tree: ProcTree) -> None:
    """A PID with another start time is another process: what was remembered of the old one is not used."""
    tree.add(4711, cgroup=IN_POD, start=1000)
    source = source_of(tree)
    source.look_up([4711], 100.0)
    tree.add(4711, cgroup=IN_OTHER, start=10_000)
    assert source.look_up([4711], 105.0).owners[4711].pod_uid == OTHER_UID


def test_k13_a_process_younger_than_the_drivers_list(tree: ProcTree) -> None:
    """A process that started after the driver made its list is not the one on the list."""
    tree.add(4711, cgroup=IN_OTHER, start=10_000)
    source = source_of(tree)
    assert source.look_up([4711], 99.9).owners == {}
    assert source.look_up([4711], 100.5).owners[4711].pod_uid == OTHER_UID


def test_k13_a_pid_that_changes_hands_while_it_is_read(tree: ProcTree) -> None:
    """When the start time differs before and after the cgroup was read, the cgroup may be of either, so of none."""
    tree.add(4711, cgroup="")
    cgroup, stat = tree.root / "4711" / "cgroup", tree.root / "4711" / "stat"
    cgroup.unlink()
    os.mkfifo(cgroup)

    def change_hands() -> None:
        with cgroup.open("w") as reading:  # opens when the source opens it
            stat.write_text(stat_line(4711, start=2000))
            reading.write(IN_POD)

    thread = threading.Thread(target=change_hands)
    thread.start()
    source = source_of(tree)
    assert source.look_up([4711], 100.0).owners == {}
    thread.join()
    cgroup.unlink()
    tree.add(4711, cgroup=IN_OTHER, start=2000)
    assert source.look_up([4711], 101.0).owners[4711].pod_uid == OTHER_UID


def test_a_zombie_is_nobodys(tree: ProcTree) -> None:
    """A process that has ended stands in the root cgroup until it is reaped; it must not pass for one outside all pods."""
    tree.add(4711, cgroup="0::/\n", state="Z")
    owners = source_of(tree).look_up([4711], 100.0)
    assert owners.owners == {}
    assert owners.rejected == 0


def test_k14_a_proc_without_the_nodes_processes(tmp_path: Path) -> None:
    """Without hostPID a PID of the driver may be anybody's here: nobody is looked up, and the state says why."""
    tree = ProcTree(tmp_path / "proc", is_host=False)
    tree.add(7, cgroup=IN_POD)
    owners = source_of(tree).look_up([7, 4711], 100.0)
    assert owners.owners == {}
    assert owners.state.fault == "no_host_pid"
    assert "hostPID" in owners.state.detail


def test_k14_none_of_the_drivers_processes_exists(tree: ProcTree) -> None:
    """One process may end unseen; when pass after pass none exists, the driver means other PIDs. One that exists clears it."""
    source = source_of(tree)
    assert [source.look_up([4711], now).state.fault for now in (1.0, 2.0, 3.0, 4.0)] == ["", "", "no_host_pid", "no_host_pid"]
    tree.add(4711, cgroup=IN_POD)
    assert source.look_up([4711], 100.0).state.up


def test_no_processes_prove_nothing(tree: ProcTree) -> None:
    """An idle node is well."""
    source = source_of(tree)
    assert all(source.look_up([], float(now)).state.up for now in range(10))


def test_no_proc(tmp_path: Path) -> None:
    """A root that is not there is named."""
    owners = ProcessSource(tmp_path / "nowhere").look_up([1], 1.0)
    assert owners.state.fault == "no_proc"
    assert str(tmp_path / "nowhere") in owners.state.detail


@pytest.mark.parametrize("cgroup", ["", f"0::/kubepods/pod{UID}/{BOX}"[:-5], b"\xff\xfe", IN_POD + IN_OTHER])
def test_files_that_make_no_sense(tree: ProcTree, cgroup: str | bytes) -> None:
    """Such a process is left out, counted, named once, and read again in the next pass."""
    tree.add(4711, cgroup=cgroup)
    tree.add(4712, cgroup=IN_POD)
    source = source_of(tree)
    with structlog.testing.capture_logs() as lines:
        for now in (100.0, 101.0, 102.0):
            owners = source.look_up([4711, 4712], now)
            assert set(owners.owners) == {4712}
            assert owners.rejected == 1
    assert [line["pid"] for line in lines if "pid" in line] == [4711]
    tree.add(4711, cgroup=IN_POD)
    assert source.look_up([4711], 103.0).owners[4711].pod_uid == UID


def test_a_file_that_vanishes_between_two_reads(tree: ProcTree) -> None:
    """A process that ends while it is looked at is left out like one that has ended."""
    tree.add(4711, cgroup=IN_POD)
    (tree.root / "4711" / "cgroup").unlink()
    owners = source_of(tree).look_up([4711], 100.0)
    assert owners.owners == {}
    assert owners.rejected == 0


def test_work_of_a_pass_is_bounded(tree: ProcTree) -> None:
    """A crowd of new processes is looked up over several passes, each once."""
    for pid in range(100, 130):
        tree.add(pid, cgroup=IN_POD)
    source = source_of(tree, max_reads=10)
    assert [len(source.look_up(range(100, 130), now).owners) for now in (100.0, 101.0, 102.0, 103.0)] == [10, 20, 30, 30]


def test_what_is_known_is_not_read_again(tree: ProcTree) -> None:
    """While a process lives its cgroup is read once a minute."""
    tree.add(4711, cgroup=IN_POD)
    source = source_of(tree)
    source.look_up([4711], 100.0)
    (tree.root / "4711" / "cgroup").write_text(IN_OTHER)
    assert source.look_up([4711], 159.0).owners[4711].pod_uid == UID
    assert source.look_up([4711], 161.0).owners[4711].pod_uid == OTHER_UID


def test_strange_pids_are_ignored(tree: ProcTree) -> None:
    """Zero and negative numbers are no processes."""
    assert source_of(tree).look_up([0, -1], 100.0).owners == {}


def test_the_log_speaks_once_per_change(tmp_path: Path) -> None:
    """A source that stays blind says so once, and once that it sees."""
    tree = ProcTree(tmp_path / "proc", is_host=False)
    source = source_of(tree)
    with structlog.testing.capture_logs() as lines:
        for now in range(5):
            source.look_up([1], float(now))
        ProcTree(tree.root)
        for now in range(5):
            source.look_up([2], 100.0 + now)
    assert [line.get("fault", "well") for line in lines] == ["no_host_pid", "well"]


def test_this_machines_own_kernel() -> None:
    """The real /proc, with whatever processes this machine shows: this one is found unless PIDs here are a container's own."""
    own = os.getpid()
    owners = ProcessSource().look_up([own], float("inf"))
    assert owners.state.up == (own in owners.owners)
    assert owners.state.fault in FAULTS | {""}


@given(cgroup=st.binary(max_size=200), stat=st.binary(max_size=200), pids=st.lists(st.integers(-5, 2**40), max_size=4))
def test_any_files_of_a_process(tmp_path_factory: pytest.TempPathFactory, cgroup: bytes, stat: bytes, pids: list[int]) -> None:
    """Whatever the files hold and whatever PIDs are asked for, nothing is raised and no UID is made up."""
    tree = ProcTree(tmp_path_factory.mktemp("proc") / "proc")
    tree.add(10, cgroup=cgroup)
    tree.add(11, cgroup=IN_POD)
    (tree.root / "11" / "stat").write_bytes(stat)
    owners = source_of(tree).look_up([10, 11, *pids], 1000.0).owners
    assert all(owner.pod_uid in {"", UID} for owner in owners.values())
