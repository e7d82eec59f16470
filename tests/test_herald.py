"""What the herald writes and hands on: one line a change, and events only to pods that are known."""

from __future__ import annotations

from collections.abc import Iterable

from structlog.testing import capture_logs

from gpuwatch.herald import Herald
from gpuwatch.kube.events import Announcement
from gpuwatch.kube.node_condition import Condition
from gpuwatch.kube.objects import Pod, Pods, SourceState, Views
from gpuwatch.snapshot import Kubernetes, Snapshot
from health.verdicts import DEGRADED, FAILED, OK, judged
from snapshots import h100, held


class Heard:
    """Takes what a cluster would be told."""

    def __init__(self) -> None:
        self.announcements: list[Announcement] = []
        self.conditions: list[Condition] = []
        self.states = {"events": SourceState(up=True, fault="")}
        self.counts = {"posted": 3}

    def start(self) -> None:
        """Nothing to begin."""

    def stop(self) -> None:
        """Nothing to end."""

    def tell(self, announcements: Iterable[Announcement]) -> None:
        """Keep them."""
        self.announcements += announcements

    def show(self, condition: Condition) -> None:
        """Keep it."""
        self.conditions.append(condition)


VIEWS = Views(pods=Pods(pods=(Pod(uid="uid-1", namespace="vision", name="resnet-worker-0"),)))


def test_a_change_is_one_line() -> None:
    """With everything that tells whom it hits; a hundred passes in the same state are no further line, and sound GPUs none at all."""
    herald = Herald()
    with capture_logs() as logs:
        for second in range(300):
            verdict = OK if second < 100 or second >= 200 else FAILED
            herald.tell(judged(verdict, OK, jobs=(held(h100(0)),)), None, float(second))
    gpu = h100(0).identity
    assert logs == [
        {
            "event": "GPU has failed",
            "log_level": "warning",
            "gpu": 0,
            "uuid": gpu.uuid,
            "model": gpu.model,
            "before": "ok",
            "state": "failed",
            "action": "reboot_node",
            "reasons": {"gpu_lost": FAILED.reasons[0].detail},
            "jobs": ["TFJob/vision/resnet"],
            "pods": ["vision/resnet-worker-0"],
        },
        {
            "event": "GPU is sound again",
            "log_level": "info",
            "gpu": 0,
            "uuid": gpu.uuid,
            "model": gpu.model,
            "before": "failed",
            "state": "ok",
            "action": "none",
            "reasons": {},
            "jobs": ["TFJob/vision/resnet"],
            "pods": ["vision/resnet-worker-0"],
        },
    ]


def test_a_flapping_verdict_fills_no_log() -> None:
    """An hour of changes every second is at most two lines a minute."""
    herald = Herald()
    with capture_logs() as logs:
        for second in range(3600):
            herald.tell(judged((OK, DEGRADED)[second % 2]), None, float(second))
    assert 60 <= len(logs) <= 2 * 61


def test_only_known_pods_are_told() -> None:
    """A pod gets its event once though two of its containers hold the GPU; one that the API server has not told of gets none."""
    heard = Heard()
    jobs = tuple(held(h100(0), pod) for pod in ("resnet-worker-0", "unknown"))
    Herald(heard).tell(judged(FAILED, jobs=jobs), VIEWS, 0.0)
    (announcement,) = heard.announcements
    assert [(pod.namespace, pod.name, pod.uid) for pod in announcement.pods] == [("vision", "resnet-worker-0", "uid-1")]
    assert "vision/unknown" in announcement.node_message
    assert (announcement.reason, announcement.type) == ("GpuFailed", "Warning")
    assert [one.status for one in heard.conditions] == ["False"]


def test_how_well_it_goes_is_in_the_snapshot() -> None:
    """Beside the sources, where attribution is on."""
    plain = judged(OK)
    assert Herald(Heard()).tell(plain, None, 0.0) is plain
    shown: Snapshot = Herald(Heard()).tell(_attributed(plain), VIEWS, 0.0)
    assert shown.kubernetes is not None
    assert (set(shown.kubernetes.sources), shown.kubernetes.notices) == ({"pods", "events"}, {"posted": 3})
    assert Herald().tell(_attributed(plain), VIEWS, 0.0).kubernetes == _attributed(plain).kubernetes


def _attributed(snapshot: Snapshot) -> Snapshot:
    values = {name: getattr(snapshot, name) for name in snapshot.__struct_fields__}
    return Snapshot(**values | {"kubernetes": Kubernetes(sources={"pods": SourceState(up=True, fault="")})})
