"""Snapshots with their holders: real attribution and accounts behind one call."""

from __future__ import annotations

import msgspec

from cluster import GONE, given, gpu, gpu_uuid, mig_gpu, mig_uuid, owner, pod, process, views
from gpuwatch.kube.labels import LabelMap
from gpuwatch.kube.objects import Pod, SourceState, Views
from gpuwatch.snapshot import Gpu, Snapshot, Totals
from gpuwatch.tagging import Tagger, states_of

UUID = gpu_uuid(0)


def tagger(*pod_labels: str) -> Tagger:
    """One with these pod labels."""
    return Tagger(labels_of=LabelMap.parse(list(pod_labels)).labels_of, grace_seconds=60.0, max_gap_seconds=10.0)


def node(*gpus: Gpu) -> Snapshot:
    """A node as the reader tells it."""
    return Snapshot(node="node-1", timestamp_seconds=0.0, version="0", up=True, gpus=gpus)


def test_a_snapshot_gets_its_holders() -> None:
    """Jobs with their use and labels, the free GPUs with their reason, the sources with state and age; the rest is as it was."""
    said = views(given("p", UUID), pods=(pod("p", labels={"team": "vision"}),), kubelet=SourceState(up=True, fault="", updated_at=4.0))
    untagged = node(gpu(0), gpu(1))
    tagged = tagger("team").tag(untagged, said, 10.0)
    (use,) = tagged.jobs
    assert (use.holder.pod, use.holder.labels, use.held) == ("p", ("vision",), True)
    assert tagged.kubernetes is not None
    assert [one.reason for one in tagged.kubernetes.unattributed] == ["not_allocated"]
    assert tagged.kubernetes.age_seconds == {"podresources": 6.0, "pods": 9.0, "dra": 9.0}
    assert msgspec.structs.replace(tagged, jobs=(), kubernetes=None) == untagged


def test_only_sources_that_are_on_are_told() -> None:
    """Each source that is switched on has its state; the age of one that has never answered is absent."""
    assert set(states_of(views())) == {"podresources"}
    assert set(states_of(views(pods=(), owners=()))) == {"podresources", "pods", "dra", "processes"}
    tagged = tagger().tag(node(gpu(0)), Views(), 10.0)
    assert tagged.kubernetes is not None
    assert (tagged.kubernetes.age_seconds, tagged.kubernetes.sources["podresources"].fault) == ({}, "starting")


def test_k6_facts_go_on_and_age_while_a_source_is_down() -> None:
    """With the API server gone for ten minutes the job is still there, its counters grow, and the age says how old the facts are."""
    tags, said = tagger(), views(given("p", UUID), pods=(pod("p"),))
    tags.tag(node(gpu(0)), said, 1.0)
    for minute in range(11):
        now = 1.0 + 60.0 * minute
        tagged = tags.tag(node(gpu(0)), views(given("p", UUID), pods=(pod("p"),), api=GONE), now)
        tagged = tags.tag(node(gpu(0)), views(given("p", UUID), pods=(pod("p"),), api=GONE), now + 1.0)
    assert tagged.kubernetes is not None
    assert (tagged.kubernetes.sources["pods"].up, tagged.kubernetes.age_seconds["pods"]) == (False, 601.0)
    assert [(one.holder.pod, one.held, one.allocated_seconds) for one in tagged.jobs] == [("p", True, 11.0)]


def test_each_change_is_seen_at_once() -> None:
    """Allocations, pods, processes, instance ids of processes and minor numbers: what changes the holders is never missed."""
    tags = tagger("team")
    said = views(given("p", UUID), pods=(pod("p"), pod("q")), owners=(owner(1, "q"),))
    assert [one.holder.pod for one in tags.tag(node(gpu(0)), said, 1.0).jobs] == ["p"]
    assert [one.holder.pod for one in tags.tag(node(gpu(0, process(1))), said, 2.0).jobs] == ["p", "q"]
    renamed = views(given("p", UUID), pods=(pod("p", labels={"team": "x"}),), owners=())
    assert [(one.holder.labels, one.held) for one in tags.tag(node(gpu(0)), renamed, 3.0).jobs] == [(("x",), True), (("",), False)]
    by_minor = views(given("m", "nvidia5"), pods=(pod("m"),))
    assert not [one for one in tags.tag(node(gpu(0)), by_minor, 4.0).jobs if one.held]
    assert [one.holder.pod for one in tags.tag(node(gpu(0, minor=5)), by_minor, 5.0).jobs if one.held] == ["m"]


def test_an_answer_without_news_costs_no_attribution() -> None:
    """A source that says the same again, only later, makes nobody look up holders anew; a source that fails does."""
    looked_up: list[Pod | None] = []

    def labels_of(found: Pod | None) -> tuple[str, ...]:
        looked_up.append(found)
        return ()

    tags = Tagger(labels_of=labels_of, grace_seconds=60.0, max_gap_seconds=10.0)
    counts = []
    for later, up in ((1.0, True), (2.0, True), (3.0, True), (4.0, False)):
        state = SourceState(up=up, fault="" if up else "timeout", updated_at=later)
        tagged = tags.tag(node(gpu(0)), views(given("p", UUID), pods=(pod("p"),), kubelet=state), 10.0)
        assert tagged.kubernetes is not None
        assert tagged.kubernetes.age_seconds["podresources"] == 10.0 - later
        counts.append(len(looked_up))
    assert counts == [1, 1, 1, 2]


def test_changes_of_instances_are_seen_at_once() -> None:
    """A process that moves to another compute instance, and a GPU whose instances cannot be read any more."""
    tags, cut = tagger(), ((1, 0, "1c.2g.35gb"), (1, 1, "1c.2g.35gb"))
    said = views(pods=(pod("q"),), owners=(owner(1, "q"),))
    for now, compute_instance in enumerate((0, 1)):
        shown = mig_gpu(0, *cut, processes=(process(1, gpu_instance=1, compute_instance=compute_instance),))
        held = [use.holder.mig_uuid for use in tags.tag(node(shown), said, float(now)).jobs if use.held]
        assert held == [mig_uuid(0, compute_instance)]
    empty = mig_gpu(0)
    for now, shown in enumerate((empty, msgspec.structs.replace(empty, medium=None)), start=2):
        tagged = tags.tag(node(shown), said, float(now))
        assert tagged.kubernetes is not None
        assert [one.reason for one in tagged.kubernetes.unattributed] == (["not_allocated"] if shown.medium else [])


def test_accounts_follow_the_totals_without_a_new_attribution() -> None:
    """Between two changes of the holders the counters go on with each snapshot."""
    tags, said = tagger(), views(given("p", UUID), pods=(pod("p"),))
    for now in range(4):
        tagged = tags.tag(node(gpu(0, totals=Totals(busy_seconds=0.5 * now, energy_joules=100.0 * now))), said, float(now))
    (use,) = tagged.jobs
    assert (use.allocated_seconds, use.busy_seconds, use.energy_joules) == (3.0, 1.5, 300.0)
