"""List and watch against a scripted server: the copy equals the truth after every recovery, and no failure makes a busy loop."""

from __future__ import annotations

import random
import threading
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from gpuwatch.kube.client import ApiServer
from gpuwatch.kube.objects import Pod
from gpuwatch.kube.pods import PodSource, decode_pod
from gpuwatch.kube.watch import FAULTS, Resource, Watcher
from kube.apiserver import PODS, Clock, ScriptedServer, after, body, chunks, line, pod, reached, status

_FAILURES = ["500", "401", "429", "event 500", "event 504", "cut", "empty", "junk", "labels", "no uid", "type", "utf-8", "nested"]


class Follower:
    """A pod source that is moved by hand, with its server."""

    def __init__(self, server: ScriptedServer, api: ApiServer) -> None:
        self.server = server
        self.clock = Clock()
        self.source = PodSource(api, "node-a", clock=self.clock, sleep=self.clock.sleep, chance=random.Random(1))  # noqa: S311 - a seed

    def follow(self, rounds: int = 1) -> list[float]:
        """Rounds with their pauses. Returns the pauses."""
        pauses = []
        for _ in range(rounds):
            pauses.append(self.source.watcher.follow())
            self.clock.sleep(pauses[-1])
        return pauses

    @property
    def names(self) -> list[str]:
        """Names of the known pods."""
        return sorted(known.name for known in self.source.view.pods)

    @property
    def truth(self) -> list[str]:
        """Names of the server's pods."""
        return sorted(item["metadata"]["name"] for item in self.server.cluster.objects.values())

    @property
    def fault(self) -> str:
        """The source's fault, of the fixed set."""
        fault = self.source.view.state.fault
        assert fault in FAULTS | {""}
        assert self.source.view.state.up == (fault == "")
        return fault

    def whole_watch(self, *lines: bytes) -> None:
        """Script a watch that lives as long as it was asked to."""
        self.server.script("watch", after(lambda: self.clock.sleep(600), chunks(lines)))


@pytest.fixture
def follower(tmp_path: Path) -> Iterator[Follower]:
    """A source beside a server with two pods."""
    with ScriptedServer() as server, reached(server, tmp_path, read_seconds=5.0) as api:
        for number in (1, 2):
            server.cluster.put(pod(number))
        yield Follower(server, api)


def test_list_comes_from_the_cache_and_is_of_this_node_only(follower: Follower) -> None:
    """The first list asks for this node's pods at version 0; the watch goes on from it with bookmarks and a limit of 5 to 10 minutes."""
    assert follower.source.view.state.fault == "starting"
    follower.follow()
    listed, watched = follower.server.requests
    assert (listed.path, listed.query) == (PODS, {"fieldSelector": "spec.nodeName=node-a", "resourceVersion": "0"})
    seconds = int(watched.query.pop("timeoutSeconds"))
    assert 300 <= seconds <= 600
    assert watched.query == {
        "fieldSelector": "spec.nodeName=node-a",
        "watch": "1",
        "resourceVersion": "102",
        "allowWatchBookmarks": "true",
    }
    assert follower.names == ["pod-1", "pod-2"]
    assert follower.fault == ""


def test_changes_arrive_by_the_watch(follower: Follower) -> None:
    """ADDED, MODIFIED and DELETED change the view; a pod that comes again under its name is another pod."""
    follower.follow()
    again = pod(2)
    again["metadata"]["uid"] = "another"
    for act in (lambda c: c.put(pod(1, team="vision")), lambda c: c.delete("uid-2"), lambda c: c.put(again), lambda c: c.put(pod(3))):
        follower.server.change(act)
    follower.follow()
    assert follower.names == ["pod-1", "pod-2", "pod-3"]
    assert {known.uid for known in follower.source.view.pods} == {"uid-1", "another", "uid-3"}
    assert next(known.labels for known in follower.source.view.pods if known.uid == "uid-1") == {"team": "vision"}
    assert follower.server.count("list") == 1


def test_one_list_and_few_watches_in_an_hour(follower: Follower) -> None:
    """An hour of a quiet node costs one list and one watch at a time, each of its full length; bookmarks keep the version moving."""
    version = follower.server.cluster.version
    while follower.clock.now < 1000 + 3600:
        version += 50
        follower.whole_watch(line("BOOKMARK", {"metadata": {"resourceVersion": str(version)}}))
        follower.follow()
        assert follower.fault == ""
        for _ in range(3600):
            assert follower.source.view.pods
    assert follower.server.count("list") == 1
    assert follower.server.count("watch") <= 12
    versions = [int(request.query["resourceVersion"]) for request in follower.server.requests if request.kind == "watch"]
    assert versions == sorted(set(versions))
    assert all(pause <= 1 for pause in follower.clock.slept if pause != 600)


@pytest.mark.parametrize("relist_is_refused", [False, True])
def test_lost_history_is_found_by_a_new_list(follower: Follower, relist_is_refused: bool) -> None:
    """After a 410 as an event, and one to the list as well, a new list is taken; a pod deleted meanwhile goes, though no event told it."""
    follower.follow()
    follower.server.change(lambda cluster: (cluster.delete("uid-1"), cluster.put(pod(3)), cluster.forget()))
    follower.follow()
    if relist_is_refused:
        follower.server.script("list", status(410, "The provided resource version is too old"))
        follower.follow()
    follower.follow()
    assert follower.names == follower.truth == ["pod-2", "pod-3"]
    assert follower.fault == ""
    lists = [request.query.get("resourceVersion") for request in follower.server.requests if request.kind == "list"]
    assert lists == (["0", "102", None] if relist_is_refused else ["0", "102"])


def test_410_status_to_a_watch_is_the_same(follower: Follower) -> None:
    """A 410 as HTTP status of a watch leads to a new list too."""
    follower.follow()
    follower.server.change(lambda cluster: (cluster.delete("uid-1"), cluster.forget()))
    follower.server.script("watch", status(410, "Gone"))
    follower.follow(2)
    assert follower.names == ["pod-2"]


def test_restored_store_is_listed_without_a_version(follower: Follower) -> None:
    """When the store was set back, the known version is too large: the list is asked again without one."""
    follower.follow()
    follower.server.cluster.version = 5
    follower.server.script("watch", status(410, "Gone"))
    follower.follow(3)
    lists = [request.query.get("resourceVersion") for request in follower.server.requests if request.kind == "list"]
    assert lists == ["0", "102", None]
    assert follower.server.requests[-1].query["resourceVersion"] == "5"
    assert follower.fault == ""


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (status(500), "server_error"),
        (status(401), "unauthorized"),
        (status(429), "throttled"),
        (chunks([line("ERROR", {"code": 500, "message": "etcd is away"})]), "server_error"),
        (chunks([line("ERROR", {"code": 504, "message": "timeout"})]), "server_error"),
        (chunks([b"{"], cut=True), "closed"),
        (chunks([]), "closed"),
        (chunks([b"{junk}\n"]), "junk"),
        (chunks([b'{"type": "MODIFIED", "object": {"metadata": {"uid": "uid-1", "labels": 5}}}\n']), "junk"),
        (chunks([b'{"type": "MODIFIED", "object": {"metadata": {}}}\n']), "junk"),
        (chunks([b'{"type": "EXPLODED", "object": {}}\n']), "junk"),
        (chunks([b"\xff\xfe\n"]), "junk"),
        (chunks([b"[" * 100000 + b"\n"]), "junk"),
    ],
    ids=_FAILURES,
)
def test_failing_watch_backs_off_and_keeps_the_facts(follower: Follower, answer: object, fault: str) -> None:
    """Ten failures in a row are spread over minutes with their facts kept and their age known; then the source recovers by itself."""
    follower.follow()
    known_at = follower.source.view.state.updated_at
    follower.server.script("watch", *[answer] * 20)  # type: ignore[list-item]
    with capture_logs() as log:
        pauses = follower.follow(10)
    assert follower.names == ["pod-1", "pod-2"]
    assert follower.fault in (fault, "")
    assert sum(pauses) > 30
    assert max(pauses) <= 60
    assert min(pauses) > 0
    assert follower.source.view.state.updated_at is not None
    assert follower.source.view.state.updated_at >= (known_at or 0)
    assert len([entry for entry in log if entry["log_level"] == "warning"]) <= 1
    follower.server.answers.clear()
    follower.server.change(lambda cluster: cluster.put(pod(9)))
    follower.follow()
    assert follower.names == follower.truth
    assert follower.fault == ""


def test_junk_is_counted_and_listed_anew(follower: Follower) -> None:
    """A line that is no JSON is counted, and the facts are listed anew, because it may have been a deletion."""
    follower.follow()
    follower.server.change(lambda cluster: cluster.delete("uid-1"))
    follower.server.script("watch", chunks([b'{"type": "DELETED", "obj\n']))
    follower.follow()
    assert follower.source.rejected == 1
    assert follower.fault == "junk"
    follower.follow()
    assert follower.names == ["pod-2"]
    assert follower.server.count("list") == 2


def test_junk_pod_does_not_cost_the_others(follower: Follower) -> None:
    """Objects of a list that are no pods are left out, counted each time and named once."""
    follower.server.cluster.objects["bad"] = {"metadata": {"uid": "bad", "name": "bad", "namespace": "team"}, "spec": []}
    follower.server.cluster.objects["worse"] = {"metadata": "worse"}
    with capture_logs() as log:
        follower.follow()
        follower.server.change(lambda cluster: cluster.forget())
        follower.follow(2)
    assert follower.names == ["pod-1", "pod-2"]
    assert follower.source.rejected == 4
    assert len([entry for entry in log if "left out" in entry["event"]]) == 1


def test_junk_list_is_a_fault(follower: Follower) -> None:
    """A list that is no list keeps what was known."""
    follower.server.script("list", body(b"<html>"), body(b'{"kind": "PodList"}'))
    follower.follow(2)
    assert follower.fault == "junk"
    follower.follow()
    assert follower.names == ["pod-1", "pod-2"]


def test_forbidden_names_the_missing_verb(follower: Follower) -> None:
    """A 403 is asked again after minutes, and the state names the verb that is missing: list or watch."""
    follower.server.script("list", status(403, "pods is forbidden"))
    (pause,) = follower.follow()
    assert 120 <= pause <= 300
    assert follower.fault == "forbidden"
    assert "verb list on pods" in follower.source.view.state.detail
    follower.server.script("watch", status(403, "pods is forbidden"))
    follower.follow()
    assert "verb watch on pods" in follower.source.view.state.detail
    follower.follow()
    assert follower.fault == ""


def test_retry_after_is_kept(follower: Follower) -> None:
    """A 429 waits at least as long as the server asks, and never for hours."""
    follower.server.script("list", status(429, "slow down", Retry_After="17"), status(429, "slow down", Retry_After="99999"))
    first, second = follower.follow(2)
    assert 17 <= first <= 18
    assert 300 <= second <= 302


def test_server_that_is_away_for_ten_minutes(tmp_path: Path) -> None:
    """Attempts in ten minutes without a server are few, the facts stay with their age, and the log holds one line."""
    with ScriptedServer() as server, reached(server, tmp_path) as api:
        server.cluster.put(pod(1))
        follower = Follower(server, api)
        follower.follow()
        known_at = follower.source.view.state.updated_at
    with capture_logs() as log:
        started, attempts = follower.clock.now, 0
        while follower.clock.now < started + 600:
            follower.follow()
            attempts += 1
    assert follower.fault == "unreachable"
    assert attempts < 60
    assert follower.names == ["pod-1"]
    assert follower.source.view.state.updated_at == known_at
    assert [entry["fault"] for entry in log if entry["log_level"] == "warning"] == ["unreachable"]
    api.close()


def test_watch_that_is_cut_goes_on_from_its_version(follower: Follower) -> None:
    """A broken connection costs no list, and the source stays up; the next watch goes on after the last event."""
    follower.follow()
    changed = pod(3)
    changed["metadata"]["resourceVersion"] = "140"
    follower.server.script("watch", chunks([line("ADDED", changed), b'{"type": "DELE'], cut=True))
    follower.follow()
    assert follower.fault == ""
    follower.follow()
    assert follower.server.requests[-1].query["resourceVersion"] == "140"
    assert follower.server.count("list") == 1
    assert follower.names == ["pod-1", "pod-2", "pod-3"]


def test_version_never_goes_back(follower: Follower) -> None:
    """A bookmark that is older than what is known does not make the watch tell old news again."""
    follower.follow()
    follower.server.script("watch", chunks([line("BOOKMARK", {"metadata": {"resourceVersion": "99"}})]))
    follower.follow(2)
    assert follower.server.requests[-1].query["resourceVersion"] == "102"


def test_defects_do_not_end_the_source(tmp_path: Path) -> None:
    """An error that nobody foresaw is a fault like others and is got over; a listener that fails is named once and changes nothing."""
    clock = Clock()
    broken = [True]

    def parse(raw: msgspec.Raw) -> Pod:
        if broken[0]:
            raise ZeroDivisionError("unforeseen")
        return decode_pod(raw)

    def publish() -> None:
        raise RuntimeError("nobody is at home")

    with ScriptedServer() as server, reached(server, tmp_path) as api, capture_logs() as log:
        server.cluster.put(pod(1))
        resource = Resource(name="pods", locate=lambda _: PODS, parse=parse)
        watcher = Watcher(api, resource, publish=publish, clock=clock, sleep=clock.sleep)
        watcher.follow()
        assert (watcher.state.fault, watcher.state.detail) == ("internal", "list pods: ZeroDivisionError: unforeseen")
        broken[0] = False
        watcher.follow()
        assert watcher.state.up
        assert len(watcher.objects) == 1
    assert [entry["event"] for entry in log].count("a listener failed") == 1


def test_silent_watch_ends_by_its_own_limit(tmp_path: Path) -> None:
    """A watch on which nothing comes, not even a bookmark, is given up after the server's limit and a spare time, and taken up again."""
    asked: list[float] = []

    class Impatient(ApiServer):
        def stream(self, path: str, params: Mapping[str, str], timeout: float) -> Generator[bytes, None, None]:
            asked.append(timeout - int(params["timeoutSeconds"]))
            return super().stream(path, params, 0.1)

    with ScriptedServer() as server, reached(server, tmp_path) as api:
        server.held = True
        follower = Follower(server, Impatient("node-a", api._configure))
        follower.follow()
        assert follower.fault == "timeout"
        assert asked == [30]
        server.held = False
        follower.follow()
        assert follower.fault == ""
        follower.source.watcher._api.close()


def test_thread_follows_and_ends(follower: Follower) -> None:
    """A started source follows in its own thread, calls whoever listens at each view, and ends when stopped."""
    server = follower.server
    server.held = True
    seen = threading.Event()
    slept: list[float] = []

    def look() -> None:
        if any(known.name == "pod-7" for known in source.view.pods):
            seen.set()

    source = PodSource(follower.source.watcher._api, "node-a", on_change=look, sleep=slept.append)
    source.start()
    server.change(lambda cluster: cluster.put(pod(7)))
    assert seen.wait(20)
    source.stop()
    server.release()
    for thread in threading.enumerate():
        if thread.name == "watch pods":
            thread.join(20)
            assert not thread.is_alive()
    assert 0 <= slept[0] <= 5


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 5)),
        st.tuples(st.just("delete"), st.integers(0, 5)),
        st.tuples(st.just("forget"), st.just(0)),
        st.tuples(st.just("refuse list"), st.sampled_from([410, 429, 500, 403, 401])),
        st.tuples(st.just("refuse watch"), st.sampled_from([410, 429, 500, 403, 401])),
        st.tuples(st.just("junk"), st.just(0)),
        st.tuples(st.just("follow"), st.just(0)),
    ),
    max_size=25,
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ScriptedServer, ApiServer]]:
    """One server for many examples."""
    with ScriptedServer() as server, reached(server, tmp_path_factory.mktemp("shared")) as api:
        yield server, api


@given(_STEPS)
def test_copy_equals_the_truth(shared: tuple[ScriptedServer, ApiServer], steps: list[tuple[str, int]]) -> None:
    """Whatever changes, is forgotten, refused or garbled on the way: when the server answers again, copy and truth are the same."""
    server, api = shared
    server.cluster.__init__()  # type: ignore[misc]
    server.answers.clear()
    follower = Follower(server, api)
    for step, value in steps:
        act(follower, step, value)
    server.answers.clear()
    follower.follow(3)
    assert follower.names == follower.truth
    assert follower.fault == ""


def act(follower: Follower, step: str, value: int) -> None:
    """One step of a history."""
    server = follower.server
    if step == "put":
        server.change(lambda cluster: cluster.put(pod(value, turn=str(cluster.version))))
    elif step == "delete" and f"uid-{value}" in server.cluster.objects:
        server.change(lambda cluster: cluster.delete(f"uid-{value}"))
    elif step == "forget":
        server.change(lambda cluster: cluster.forget())
    elif step.startswith("refuse"):
        server.script(step.split()[1], *[status(value)] * (2 if value == 401 else 1))
    elif step == "junk":
        server.script("watch", chunks([b"}\n"]))
    elif step == "follow":
        follower.follow()
