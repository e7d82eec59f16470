"""Events and the node condition over real HTTP, against a server that accepts no more than Kubernetes does."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from daemon import free_port, wait_for
from gpuwatch.kube.client import by_kubeconfig
from gpuwatch.kube.events import Announcement, PodTold
from gpuwatch.kube.node_condition import Condition
from gpuwatch.kube.notices import RESULTS, Notices
from kube.apiserver import Clock, ScriptedServer, body, chunks, hang, reached, status

TEAM, DEFAULT = "/api/v1/namespaces/team/events", "/api/v1/namespaces/default/events"
NODE = "/api/v1/nodes/node-a/status"
POD = PodTold(namespace="team", name="mnist-worker-0", uid="uid-1")
AT = 1_760_000_000.0


def news(reason: str = "GpuFailed", *pods: PodTold, at: float = AT, action: str = "reboot_node") -> Announcement:
    """Of one GPU."""
    return Announcement(
        reason=reason,
        type="Warning",
        gpu_uuid="GPU-1",
        action=action,
        node_message="GPU 0 has failed.",
        pod_message="GPU 0, which this pod holds, has failed.",
        pods=pods or (POD,),
        at=at,
    )


@dataclass
class Told:
    """Notices without their thread, on a clock of the test's."""

    notices: Notices
    server: ScriptedServer
    clock: Clock

    def settle(self) -> None:
        """Take steps until there is nothing to do at once."""
        while self.notices.step() == 0.0:
            pass

    def run(self, seconds: float) -> None:
        """Let time pass, and take each step when it is due."""
        end = self.clock.now + seconds
        while True:
            pause = self.notices.step()
            if self.clock.now + pause > end:
                self.clock.now = end
                return
            self.clock.now += pause

    def fault(self, name: str = "events") -> str:
        """Of events or the node condition."""
        return self.notices.states[name].fault

    @property
    def events(self) -> dict[tuple[str, str], dict[str, Any]]:
        """What the server holds."""
        return self.server.cluster.told.events

    def conditions(self) -> dict[str, dict[str, str]]:
        """What the node says."""
        return {one["type"]: one for one in self.server.cluster.told.nodes["node-a"]["status"]["conditions"]}


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    """Both ways to tell, with a node that says it is ready."""
    with telling(tmp_path) as one:
        yield one


@contextmanager
def telling(folder: Path, **limits: float) -> Iterator[Told]:
    """The same, with limits of the client."""
    with ScriptedServer() as server, reached(server, folder, **limits) as api:
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": "then"}
        server.cluster.told.nodes["node-a"] = {"kind": "Node", "metadata": {"name": "node-a"}, "status": {"conditions": [ready]}}
        clock = Clock()
        notices = Notices(
            api,
            "node-a",
            events=True,
            condition=True,
            clock=clock,
            wall=lambda: AT - 1000.0 + clock.now,
            chance=random.Random(1),  # noqa: S311
        )
        yield Told(notices, server, clock)


def test_an_event_is_what_the_api_takes(told: Told) -> None:
    """One about the node in ``default`` and one about the pod in its namespace, with every field that kubectl shows."""
    told.notices.tell([news()])
    told.settle()
    about_node, about_pod = told.events.values()
    assert about_node["involvedObject"] == {"kind": "Node", "name": "node-a", "uid": "node-a"}
    assert about_pod["involvedObject"] == {"apiVersion": "v1", "kind": "Pod", "namespace": "team", "name": "mnist-worker-0", "uid": "uid-1"}
    assert (about_node["metadata"]["namespace"], about_pod["metadata"]["namespace"]) == ("default", "team")
    assert (about_node["message"], about_pod["message"]) == ("GPU 0 has failed.", "GPU 0, which this pod holds, has failed.")
    for event in (about_node, about_pod):
        assert event["source"] == {"component": "gpuwatch", "host": "node-a"}
        assert event["firstTimestamp"] == event["lastTimestamp"] == "2025-10-09T08:53:20Z"
        assert (event["reason"], event["type"], event["count"], event["reportingComponent"]) == ("GpuFailed", "Warning", 1, "gpuwatch")
    assert told.notices.counts == {"posted": 2}


def test_the_same_news_is_there_once(told: Told) -> None:
    """Told again in the same ten minutes, by this agent or the next, it is a 409 and done; other news is another event."""
    told.notices.tell([news(), news(at=AT + 1)])
    told.settle()
    assert told.notices.counts == {"posted": 2, "already_told": 2}
    told.notices.tell([news(action="inspect"), news("GpuRecovered"), news(at=AT + 600)])
    told.settle()
    assert told.notices.counts == {"posted": 8, "already_told": 2}


def test_a_long_message_is_cut(told: Told) -> None:
    """At most 1024 bytes, whatever the alphabet."""
    told.notices.tell([msgspec.structs.replace(news(), node_message="ß" * 2000)])
    told.settle()
    assert told.notices.counts == {"posted": 2}


def test_the_right_is_asked_for_before_it_is_needed(told: Told) -> None:
    """A dry run at the start says whether events can be posted; nothing is kept of it."""
    told.settle()
    (asked,) = [one for one in told.server.requests if one.kind == "post"]
    assert (asked.path, asked.query) == (DEFAULT, {"dryRun": "All"})
    assert (told.events, told.notices.counts, told.fault()) == ({}, {}, "")


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (status(500), "server_error"),
        (status(503), "server_error"),
        (status(429, Retry_After="20"), "throttled"),
        (chunks([], cut=True), "closed"),
        (status(401), "unauthorized"),
    ],
    ids=["500", "503", "429", "closed", "401"],
)
def test_a_passing_failure_is_tried_again(told: Told, answer: Callable[[Any], None], fault: str) -> None:
    """It is shown while it lasts, costs no event, and is logged once each way."""
    told.settle()
    told.server.script("post", *[answer] * 6)
    told.notices.tell([news()])
    with capture_logs() as logs:
        told.notices.step()
        assert told.fault() == fault
        told.run(300.0)
    assert (told.fault(), told.notices.counts) == ("", {"posted": 2})
    assert [line["log_level"] for line in logs] == ["warning", "info"]


def test_retry_after_is_honoured(told: Told) -> None:
    """Nothing is posted before the server wishes it."""
    told.settle()
    told.server.script("post", status(429, Retry_After="120"))
    told.notices.tell([news()])
    told.settle()
    asked = told.server.count("post")
    told.run(119.0)
    assert told.server.count("post") == asked
    told.run(10.0)
    assert told.notices.counts == {"posted": 2}


def test_a_missing_right_is_said_once_and_asked_for_slowly(told: Told) -> None:
    """Forbidden is the state and one line; when the right is granted it recovers by itself, though nothing is left to be told."""
    told.server.script("post", *[status(403, 'events is forbidden: User "x" cannot create resource "events"')] * 8)
    told.notices.tell([news()])
    with capture_logs() as logs:
        told.run(700.0)
        assert (told.fault(), told.server.count("post") <= 8) == ("forbidden", True)
        assert [line["fault"] for line in logs if line["log_level"] == "warning"] == ["forbidden"]
        assert "create on events" in logs[0]["detail"]
        told.run(1500.0)
    assert told.fault() == ""
    assert told.notices.counts == {"expired": 2}
    assert told.events == {}


def test_one_forbidden_namespace_costs_no_other(told: Told) -> None:
    """A role that reaches some namespaces only: events for those are posted."""
    told.settle()
    told.server.script("post", status(403))
    told.notices.tell([news()])
    told.run(60.0)
    assert told.server.cluster.told.about("Pod", "mnist-worker-0") == ["GpuFailed"]
    assert told.server.cluster.told.about("Node", "node-a") == []
    told.run(400.0)
    assert told.server.cluster.told.about("Node", "node-a") == ["GpuFailed"]
    assert told.fault() == ""


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (status(404, 'namespaces "team" not found'), "gone"),
        (status(403, "unable to create new content in namespace team because it is being terminated"), "gone"),
        (status(409, "already exists"), "already_told"),
        (status(422, "Event is invalid"), "refused"),
        (status(400, "admission webhook denied the request"), "refused"),
    ],
    ids=["404", "terminating", "409", "422", "400"],
)
def test_what_no_second_try_changes_is_done_with(told: Told, answer: Callable[[Any], None], result: str) -> None:
    """It is counted and dropped, and what waits behind it goes on at once."""
    told.settle()
    told.server.script("post", answer)
    told.notices.tell([news()])
    told.settle()
    assert told.notices.counts == {result: 1, "posted": 1}
    assert told.fault() == ""
    assert set(told.notices.counts) <= RESULTS


def test_old_news_is_given_up(told: Told) -> None:
    """After ten minutes nobody wants it; what came later is posted."""
    told.settle()
    told.server.script("post", *[status(500)] * 1000)
    told.notices.tell([news()])
    told.run(590.0)
    told.notices.tell([news("GpuRecovered")])
    told.run(60.0)
    told.server.answers.clear()
    told.run(120.0)
    assert told.notices.counts == {"expired": 2, "posted": 2}
    assert told.server.cluster.told.about("Node", "node-a") == ["GpuRecovered"]


def test_too_much_news_loses_the_oldest(told: Told) -> None:
    """The queue is bounded, and says what it cost."""
    told.notices.tell([news(at=AT + 600.0 * number) for number in range(200)])
    told.settle()
    assert told.notices.counts == {"posted": 256, "dropped": 144}


def test_nobody_listens(tmp_path: Path) -> None:
    """A refused connection is a state, and the events are posted when the server is back."""
    file = tmp_path / "kubeconfig"
    cluster = {"name": "one", "cluster": {"server": f"http://127.0.0.1:{free_port()}"}}
    file.write_text(
        json.dumps(
            {
                "current-context": "here",
                "contexts": [{"name": "here", "context": {"cluster": "one", "user": "u"}}],
                "clusters": [cluster],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    notices = Notices(by_kubeconfig("node-a", file), "node-a", events=True, condition=True, clock=Clock())
    notices.tell([news()])
    notices.show(SOUND)
    assert notices.step() > 0.0
    assert {state.fault for state in notices.states.values()} == {"unreachable"}


def test_a_hung_server_blocks_nobody(tmp_path: Path) -> None:
    """While the thread waits for an answer, news is taken and stop returns; the thread ends when the answer's deadline has passed."""
    with ScriptedServer() as server, reached(server, tmp_path, read_seconds=1.0) as api:
        server.script("post", hang, hang)
        notices = Notices(api, "node-a", events=True, condition=False)
        before = set(threading.enumerate())
        notices.start()
        (thread,) = [one for one in set(threading.enumerate()) - before if one.name == "kube-notices"]
        wait_for(lambda: server.count("post"), "the first request")
        for _ in range(1000):
            notices.tell([news()])
        assert notices.counts == {"dropped": 2000 - 256}
        wait_for(lambda: notices.states["events"].fault == "timeout", "the deadline")
        notices.stop()
        wait_for(lambda: not thread.is_alive(), "the end of the thread")


def test_the_thread_tells_what_comes(tmp_path: Path) -> None:
    """The real clock: news is posted without a further call."""
    with ScriptedServer() as server, reached(server, tmp_path) as api:
        notices = Notices(api, "node-a", events=True, condition=False)
        notices.start()
        try:
            wait_for(lambda: notices.states["events"].up, "the right")
            notices.tell([news()])
            wait_for(lambda: notices.counts == {"posted": 2}, "the events")
        finally:
            notices.stop()


SOUND = Condition(status="True", reason="AllGpusOk", message="all 8 GPUs are sound", since=AT)
BAD = Condition(status="False", reason="GpuFailed", message="1 of 8 GPUs failed", since=AT + 100)


def test_the_condition_is_one_of_the_nodes(told: Told) -> None:
    """It is added beside the node's own, and nothing else of the node changes."""
    told.notices.show(SOUND)
    told.settle()
    assert told.conditions() == {
        "Ready": {"type": "Ready", "status": "True", "lastHeartbeatTime": "then"},
        "GpuHealthy": {
            "type": "GpuHealthy",
            "status": "True",
            "reason": "AllGpusOk",
            "message": "all 8 GPUs are sound",
            "lastHeartbeatTime": "2025-10-09T08:53:20Z",
            "lastTransitionTime": "2025-10-09T08:53:20Z",
        },
    }
    assert told.fault("node_condition") == ""


def test_the_time_of_the_change_survives_heartbeats_and_restarts(told: Told, tmp_path: Path) -> None:
    """It moves with the status alone; a new agent learns it from the node, without a right to read nodes."""
    told.notices.show(SOUND)
    told.run(1000.0)
    first = told.conditions()["GpuHealthy"]
    assert first["lastHeartbeatTime"] > first["lastTransitionTime"]
    with reached(told.server, tmp_path) as api:
        again = Notices(api, "node-a", events=False, condition=True, clock=told.clock, wall=lambda: AT + 5000.0)
        again.show(Condition(status="True", reason="GpuDegraded", message="1 of 8 GPUs degraded", since=AT + 5000.0))
        again.step()
    second = told.conditions()["GpuHealthy"]
    assert (second["reason"], second["lastTransitionTime"]) == ("GpuDegraded", first["lastTransitionTime"])
    told.notices.show(BAD)
    told.settle()
    assert told.conditions()["GpuHealthy"]["lastTransitionTime"] == "2025-10-09T08:55:00Z"
    assert {request.kind for request in told.server.requests} == {"post", "patch"}


def test_patches_are_few(told: Told) -> None:
    """One every five minutes when nothing changes, one at once when something does, and not more than six a minute in any case."""
    told.notices.show(SOUND)
    told.run(3600.0)
    assert told.server.count("patch") == 1 + 12 + 1  # the empty one, one at the start, twelve heartbeats at most
    told.notices.show(BAD)
    told.notices.step()
    assert told.conditions()["GpuHealthy"]["status"] == "False"
    before = told.server.count("patch")
    for number in range(600):
        told.notices.show((SOUND, BAD)[number % 2])
        told.run(1.0)
    assert told.server.count("patch") - before <= 60
    told.run(60.0)
    assert told.conditions()["GpuHealthy"]["status"] == "False"


@pytest.mark.parametrize(("answer", "fault"), [(status(403), "forbidden"), (status(404), "not_found")])
def test_a_condition_that_is_refused_waits_for_a_person(told: Told, answer: Callable[[Any], None], fault: str) -> None:
    """It is tried every few minutes, costs the events nothing, and recovers."""
    told.server.script("patch", answer, answer)
    told.notices.show(SOUND)
    told.notices.tell([news()])
    told.run(100.0)
    assert (told.fault("node_condition"), told.server.count("patch")) == (fault, 1)
    assert told.notices.counts == {"posted": 2}
    told.run(900.0)
    assert told.fault("node_condition") == ""


def test_junk_for_an_answer_is_a_fault(told: Told) -> None:
    """A proxy's page instead of a node is not taken for one."""
    told.server.script("patch", body(b"<html>"))
    told.notices.show(SOUND)
    told.notices.step()
    assert told.fault("node_condition") == "internal"
    told.run(60.0)
    assert told.fault("node_condition") == ""


def test_only_what_is_wished_is_told(tmp_path: Path) -> None:
    """Without events none is kept, without the condition none either."""
    with ScriptedServer() as server, reached(server, tmp_path) as api:
        notices = Notices(api, "node-a", events=False, condition=False)
        notices.tell([news()])
        notices.show(BAD)
        notices.step()
        assert (server.requests, notices.counts, notices.states) == ([], {}, {})


def test_the_node_must_have_a_name(tmp_path: Path) -> None:
    """A name that would be a path of its own is refused at the start."""
    with pytest.raises(ValueError, match="node name"):
        Notices(by_kubeconfig("x", tmp_path / "none"), "../default", events=True, condition=True)
