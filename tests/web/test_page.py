"""The page for people: what it says, how it says it, and that no value can leave its place."""

from __future__ import annotations

import html.parser
import re
from typing import TYPE_CHECKING, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from browser import Browser, browser
from gpuwatch.curves import STEP_SECONDS, Curves
from gpuwatch.device.readings import Fast, Identity, Medium, Memory, SourceHealth
from gpuwatch.kube.objects import JobRef, SourceState
from gpuwatch.snapshot import Gpu, Holder, JobUse, Kubernetes, Listening, Reason, Snapshot, Unattributed, Verdict, XidCount
from gpuwatch.web.page import render_page
from serving import Agent, serving
from snapshots import GIB, a100_mig, attributed, h100, held, hostile, judged, node, starting

if TYPE_CHECKING:
    from pathlib import Path

VOID = {"meta", "link"}


class Reader(html.parser.HTMLParser):
    """Reads a page: its text, its tables, and whether every tag is closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self._rows: list[list[str]] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag; a cell begins a new text."""
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self._rows = []
        if tag == "tr":
            self._rows.append([])
        if tag in {"td", "th"}:
            self._rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        """Close the tag that is open."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Collect the text of cells and the captions of tables."""
        if "caption" in self.open:
            self.tables[data] = self._rows
        elif {"td", "th"} & set(self.open) and "svg" not in self.open:
            self._rows[-1][-1] += data


def table(snapshot: Snapshot, caption: str) -> list[dict[str, str]]:
    """The rows of one table, by heading."""
    heads, *rows = Reader(render_page(snapshot)).tables[caption]
    return [dict(zip(heads, (cell.replace("\xa0", " ") for cell in row), strict=True)) for row in rows]


def test_gpu_row_in_full() -> None:
    """A GPU is shown with its use against its own limits."""
    assert table(node(h100()), "GPUs") == [
        {
            "GPU": "0 · NVIDIA H100 80GB HBM3GPU-00000000-0000-0000-0000-000000000000",
            "State": "up not judged",
            "Utilisation": "87 %",
            "Memory": "62.0 GiB of 80.0 GiB",
            "Power": "523 W of 700 W",
            "Temperature": "61 °C26 °C below its limit",
            "Throttled by": "software power cap",
            "Processes": "1",
        }
    ]


def test_not_reported_is_not_zero() -> None:
    """Zero is shown as zero; what the board does not report is n/a."""
    row = table(node(a100_mig()), "GPUs")[0]
    assert row["Utilisation"] == "n/a"
    assert row["Power"] == "0 W of n/a"
    assert row["Memory"] == "0.0 GiB of 80.0 GiB"
    assert row["Processes"] == "0"
    assert row["Throttled by"] == "nothing (idle)"
    bare = table(node(Gpu(identity=Identity(index=0), up=True, fast=Fast(throttle_reasons=()))), "GPUs")[0]
    assert {bare[head] for head in ("Utilisation", "Memory", "Power", "Temperature", "Processes")} == {"n/a"}
    assert bare["Throttled by"] == "nothing"


def test_down_gpu_says_why_and_shows_nothing_stale() -> None:
    """A lost GPU keeps its row, with its fault in words and no values."""
    page = render_page(node(h100(), h100(1, up=False, fault="gpu_is_lost")))
    row = table(node(h100(1, up=False, fault="gpu_is_lost")), "GPUs")[0]
    assert row["State"].startswith("down gpu_is_lostThe GPU fell off the bus")
    assert {row[head] for head in ("Utilisation", "Memory", "Power", "Temperature", "Throttled by", "Processes")} == {"n/a"}
    assert "1 of 2 GPUs not answering." in page


LOST = Verdict(
    state="failed",
    action="reboot_node",
    reasons=(
        Reason(code="xid_79", severity="page", action="reboot_node", detail="XID 79, GPU has fallen off the bus"),
        Reason(code="row_remap_pending", severity="ticket", action="reset_gpu"),
    ),
)
OK = Verdict(state="ok")
XID_79 = XidCount(xid="79", category="pcie_bus", severity="page", count=1, last_seen_seconds=1_760_000_000.0)


def test_finding_says_what_to_do_and_whom_it_hits() -> None:
    """A failed GPU stands on top with its state, its holder, one errand and every reason; sound GPUs are not there."""
    gpu = judged(h100(up=False, fault="gpu_is_lost"), LOST)
    snapshot = msgspec.structs.replace(attributed(held(h100())), gpus=(judged(h100(1), OK), gpu))
    assert table(snapshot, "Findings") == [
        {
            "GPU": "0 · NVIDIA H100 80GB HBM3",
            "State": "✕ failed",
            "Held by": "TFJob resnet, worker 0vision/resnet-worker-0 · tensorflow",
            "What to do": "reboot nodeDrain the node and reboot it; power it off and on if that does not help.",
            "Why": "page XID 79, GPU has fallen off the bus xid_79ticket row_remap_pending row_remap_pending",
        }
    ]
    assert [row["State"] for row in table(snapshot, "GPUs")] == ["✓ ok", "✕ failed gpu_is_lost"]
    assert "1 of 2 GPUs failed, 1 ok.</strong> 1 not answering." in render_page(snapshot)


def test_holders_of_instances_are_named_where_their_gpu_failed() -> None:
    """A fault of a GPU in MIG mode hits everybody who holds an instance of it."""
    parent = judged(a100_mig(), LOST)
    snapshot = msgspec.structs.replace(
        attributed(held(parent, "b", mig_uuid="MIG-1-0"), held(parent, "c", mig_uuid="MIG-1-1")), gpus=(parent,)
    )
    (row,) = table(snapshot, "Findings")
    assert row["Held by"].count("TFJob resnet") == 2


@pytest.mark.parametrize(("state", "sign"), [("ok", "✓"), ("degraded", "▲"), ("unknown", "?"), ("failed", "✕")])
def test_state_is_told_without_colour(state: Literal["ok", "degraded", "unknown", "failed"], sign: str) -> None:
    """Each state has its word and a sign of its own; the sign is not read aloud."""
    page = render_page(node(judged(h100(), Verdict(state=state))))
    assert f'<span class="sign" aria-hidden="true">{sign}</span> {state}</span>' in page


def test_sound_node_is_one_calm_sentence() -> None:
    """Nothing is listed where nothing is wrong."""
    page = render_page(node(judged(h100(), OK), judged(h100(1), OK)))
    assert "All 2 GPUs are ok." in page
    assert "Findings" not in Reader(page).tables


def heard(*counts: XidCount, sources: tuple[SourceHealth, ...] = ()) -> Snapshot:
    """A node with these XIDs on its first GPU."""
    gpu = msgspec.structs.replace(h100(), xids=counts)
    return msgspec.structs.replace(node(gpu, h100(1)), listening=Listening(sources=sources))


def test_newest_xids_are_listed() -> None:
    """The newest first: what it means, how grave it is, how often and when it came."""
    now = node().timestamp_seconds
    counts = [
        XidCount(xid="31", category="user_app", severity="info", count=12, last_seen_seconds=now - 7200),
        XidCount(xid="48", category="memory_ecc", severity="page", count=1, last_seen_seconds=now - 180),
    ]
    assert table(heard(*counts), "Last XIDs") == [
        {
            "XID": "48 · Uncorrectable ECC error",
            "GPU": "0",
            "Severity": "page",
            "Count": "1",
            "Last seen": "3 min ago2025-10-09 08:50:20 UTC",
        },
        {
            "XID": "31 · Memory page fault",
            "GPU": "0",
            "Severity": "info",
            "Count": "12",
            "Last seen": "2 h ago2025-10-09 06:53:20 UTC",
        },
    ]
    many = [msgspec.structs.replace(counts[0], xid=str(number)) for number in range(1, 31)]
    assert "<p>and 20 more</p>" in render_page(heard(*many))


def test_silence_is_told_apart_from_deafness() -> None:
    """No XID while both sources listen is one thing, a source that does not listen another: it is named, with why and the cure."""
    log, nvml = SourceHealth(source="kernel_log", up=True), SourceHealth(source="nvml", up=True)
    assert "None so far. Listening to the kernel log and NVML&#x27;s events." in render_page(heard(sources=(log, nvml)))
    page = render_page(heard(sources=(SourceHealth(source="kernel_log", up=False, fault="permission"), nvml)))
    assert "Not listening</span> to the kernel log: it may not be read: run as root, or with CAP_SYSLOG <code>permission</code>" in page
    assert "Listening to NVML&#x27;s events." in page
    assert "Nobody listens for XIDs now" in render_page(heard())


def test_temperature_above_its_limit_is_said_so() -> None:
    """A negative margin reads as above the limit."""
    gpu = Gpu(
        identity=Identity(index=0),
        up=True,
        fast=Fast(temperature_celsius={"gpu": 95.0}),
        medium=Medium(temperature_margin_celsius=-3.0),
    )
    assert table(node(gpu), "GPUs")[0]["Temperature"] == "95 °C3 °C above its limit"


def test_mig_and_links_have_their_tables() -> None:
    """MIG instances and links are shown where there are any."""
    snapshot = node(h100(), a100_mig())
    assert [row["Memory"] for row in table(snapshot, "MIG instances")] == ["3.0 GiB of 10.0 GiB", "n/a of 10.0 GiB"]
    assert table(snapshot, "Links") == [
        {"GPU": "0", "PCIe generation": "5 of 5", "PCIe width": "16 of 16", "NVLink": "17 of 18 up"},
        {"GPU": "1", "PCIe generation": "1 of 4", "PCIe width": "16 of 16", "NVLink": "n/a"},
    ]
    assert "MIG instances" not in Reader(render_page(node(h100()))).tables


def test_holder_is_named_by_its_job_and_pod() -> None:
    """A GPU shows the job and the pod that hold it, an instance its own, and a GPU in MIG mode how many of its instances are held."""
    gpu, parent = h100(), a100_mig()
    free = Unattributed(gpu_uuid=parent.identity.uuid, mig_uuid="MIG-1-1", reason="not_allocated")
    snapshot = attributed(held(gpu), held(parent, "bert-0", mig_uuid="MIG-1-0"), unattributed=(free,))
    assert [row["Held by"] for row in table(snapshot, "GPUs")] == [
        "TFJob resnet, worker 0vision/resnet-worker-0 · tensorflow",
        "1 of 2 MIG instances held",
    ]
    assert [row["Held by"] for row in table(snapshot, "MIG instances")] == [
        "TFJob resnet, worker 0vision/bert-0 · tensorflow",
        "free: given to nobody",
    ]


def test_sharing_and_use_without_a_request_are_marked() -> None:
    """Holders that share, and one that asked for nothing, are told apart from those with a GPU of their own."""
    uses = (held(h100(), "a", shared=True), held(h100(), "b", shared=True, requested=False))
    cell = table(attributed(*uses), "GPUs")[0]["Held by"]
    assert cell == "TFJob resnet, worker 0 sharedvision/a · tensorflowTFJob resnet, worker 0 shared not requestedvision/b · tensorflow"


def test_many_holders_are_counted_not_listed() -> None:
    """A GPU that dozens share keeps a row that can be read."""
    cell = table(attributed(*(held(h100(), f"pod-{number}", shared=True) for number in range(30))), "GPUs")[0]["Held by"]
    assert cell.count("TFJob") == 8
    assert cell.endswith("and 22 more")


def test_ended_holders_are_not_shown() -> None:
    """Counters outlive a job; on the page it holds nothing any more."""
    over = msgspec.structs.replace(held(h100()), held=False)
    free = Unattributed(gpu_uuid=h100().identity.uuid, reason="pod_ended")
    assert table(attributed(over, unattributed=(free,)), "GPUs")[0]["Held by"] == "free: its last pod is over"


def test_sources_say_how_they_do() -> None:
    """Each source is up with its age, or down with its fault in words and what to do; ids that NVML does not know are listed."""
    down = SourceState(fault="forbidden", detail='pods is forbidden: User "x" cannot list')
    snapshot = attributed(podresources=SourceState(up=True, fault=""), pods=down, dra=SourceState())
    assert snapshot.kubernetes is not None
    kubernetes = msgspec.structs.replace(
        snapshot.kubernetes, age_seconds={"podresources": 4.0, "pods": 600.0}, unknown_devices=("GPU-gone", *map(str, range(30)))
    )
    snapshot = msgspec.structs.replace(snapshot, kubernetes=kubernetes)
    kubelet, pods, dra = table(snapshot, "Attribution")
    assert kubelet == {"Source": "kubelet", "State": "up", "Last answer": "4 s ago"}
    assert pods["State"].startswith(
        'down forbiddenpods is forbidden: User "x" cannot listGrant the service account list and watch on "pods"'
    )
    assert pods["Last answer"] == "10 min ago"
    assert dra["Last answer"] == "never"
    page = render_page(snapshot)
    assert "<code>GPU-gone</code>" in page
    assert "and 11 more" in page


def test_outside_a_cluster_nothing_speaks_of_holders() -> None:
    """With attribution off there is neither a column of n/a nor a table without rows."""
    page = render_page(node())
    assert "Held by</th>" not in page
    assert "Attribution" not in Reader(page).tables


def test_fault_of_the_node_is_in_words() -> None:
    """A node that is not read says why, in the agent's words and by its token."""
    page = render_page(starting())
    assert "Not reading GPUs." in page
    assert "no read is complete yet <code>starting</code>" in page
    assert "No GPU has been seen yet." in page


@pytest.mark.parametrize("simulated", [True, False])
def test_simulation_is_never_taken_for_a_fleet(simulated: bool) -> None:
    """A simulated node says so on top; a real one does not."""
    assert ("Simulated: these GPUs do not exist." in render_page(node(simulated=simulated))) is simulated


def test_page_is_accessible_and_self_contained() -> None:
    """Language, title, one first heading, captions, scopes; nothing loaded from anywhere."""
    reader = Reader(render_page(node(h100(), a100_mig(), simulated=True)))
    names = [tag for tag, _ in reader.tags]
    assert ("html", {"lang": "en"}) in reader.tags
    assert names.count("h1") == names.count("title") == names.count("main") == 1
    assert names.count("caption") == names.count("table") == 3
    assert all(attributes.get("scope") in {"row", "col"} for tag, attributes in reader.tags if tag == "th")
    assert not {"img", "iframe", "object"} & set(names)
    assert [attributes for tag, attributes in reader.tags if tag == "script"] == [{}]
    assert {attributes["href"] for _, attributes in reader.tags if "href" in attributes} == {
        "data:,",
        "/metrics",
        "/api/v1/snapshot",
        "/healthz",
        "/readyz",
    }


def test_colours_have_contrast() -> None:
    """Every text colour stands at 4.5 to 1 or better on every ground it is used on, in light and in dark."""
    style = render_page(starting())
    light, dark = (dict(re.findall(r"--(\w+):(#\w+)", block)) for block in re.findall(r":root\{([^}]*)\}", style))
    for colours in (light, {**light, **dark}):
        for ground in ("ground", "card"):
            for text in ("text", "soft", "good", "bad", "warn", "odd", "link"):
                assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
        for tone in ("bad", "good", "warn", "odd"):
            assert contrast(colours[tone], colours[f"{tone}ground"]) >= 4.5


def contrast(first: str, second: str) -> float:
    """Contrast of two colours as the accessibility guidelines define it."""
    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    """Relative luminance of ``#rgb`` or ``#rrggbb``."""
    digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@given(st.text(), st.integers(0, 1 << 62), st.floats(allow_nan=False, allow_infinity=False))
def test_any_value_leaves_the_page_well_formed(text: str, count: int, number: float) -> None:
    """Whatever the values, the page has the same tags, all closed."""
    tags = [tag for tag, _ in Reader(render_page(filled(text, count, number))).tags]
    assert tags == [tag for tag, _ in Reader(render_page(filled("x", 1, 0.5))).tags]


def filled(text: str, count: int, number: float) -> Snapshot:
    """A snapshot with one text and two numbers in every place."""
    memory = Memory(used_bytes=count, total_bytes=GIB)
    fast = Fast(utilization_ratio=number, power_watts=number, memory=memory, throttle_reasons=(text,))
    reason = Reason(code=text, severity="page", action="inspect", detail=f"x{text}")
    gpu = Gpu(
        identity=Identity(index=0, uuid=text, model=text),
        up=False,
        fault=f"x{text}",
        fast=fast,
        xids=(XidCount(xid=text, category=text, severity=text, count=count, last_seen_seconds=number),),
        verdict=Verdict(state="failed", action="inspect", reasons=(reason,)),
    )
    job = JobRef(kind=text, name=text, replica_type=text)
    use = JobUse(holder=Holder(gpu_uuid=text, namespace=text, pod=text, container=f"x{text}", job=job), allocated_seconds=number)
    state = SourceState(fault=text, detail=f"x{text}")
    kubernetes = Kubernetes(sources={f"x{text}": state}, age_seconds={f"x{text}": abs(number)}, unknown_devices=(text,))
    return Snapshot(
        node=text,
        timestamp_seconds=number,
        version=text,
        up=True,
        gpus=(gpu,),
        driver_version=text,
        jobs=(use,),
        kubernetes=kubernetes,
        listening=Listening(sources=(SourceHealth(source="nvml", up=False, fault=text),)),
    )


def curves_of(*snapshots: Snapshot) -> Curves:
    """A sample of each, in this order."""
    curves = Curves()
    for step, snapshot in enumerate(snapshots):
        curves.note(snapshot, 1000.0 + step * STEP_SECONDS)
    return curves


def test_each_value_has_its_last_minutes() -> None:
    """With a past there is a curve of use, memory, power and heat for each GPU that reports them, each told in words with its limit."""
    snapshot = node(h100(), a100_mig())
    reader = Reader(render_page(snapshot, curves_of(snapshot, snapshot)))
    assert sum(tag == "svg" and attributes.get("class") == "curve" for tag, attributes in reader.tags) == 8
    page = render_page(snapshot, curves_of(snapshot)).replace("\xa0", " ")
    assert "<title>Utilisation in the last 5 minutes: always 87 %, now 87 %</title>" in page
    assert "<title>Power in the last 5 minutes: always 523 W, now 523 W</title><desc>The dashed line is its limit, 700 W." in page
    assert "<title>Temperature in the last 5 minutes: always 61 °C, now 61 °C</title><desc>The dashed line is its limit, 87 °C." in page
    assert "<title>Memory in the last 5 minutes: always 30 %, now 30 %</title>" in page
    assert table(snapshot, "GPUs")[0]["Power"] == "523 W of 700 W"


def test_a_gpu_that_fell_silent_keeps_its_past_and_shows_no_present() -> None:
    """After a loss the values are n/a, and the curves show when they ended."""
    lost = node(h100(up=False, fault="gpu_is_lost"))
    page = render_page(lost, curves_of(node(h100()), node(h100()), lost)).replace("\xa0", " ")
    assert "Power in the last 5 minutes: always 523 W, not reported now" in page
    assert "now 523 W" not in page


def test_browser_shows_hostile_values_as_text(tmp_path: Path) -> None:
    """A real browser renders the page without a word on its console and runs nothing that a value brought, also after a refresh."""
    with serving(agent=Agent(hostile(), past=curves_of(hostile()))) as running, browser(tmp_path) as tab:
        for snapshot in (hostile(), attributed(held(h100())), hostile()):
            running.agent.latest = snapshot
            tab.open(running.url)
            running.agent.latest = hostile()
            refresh(tab)
            tab.until(lambda: "<script>" in tab.run("document.body.innerText"), "the hostile values")
            assert tab.run("document.title") == "gpuwatch on <script>document.title='owned'</script>\"'&\\ </style>"
            assert tab.run("document.scripts.length") == 1
            assert tab.run("document.body.querySelectorAll('script, style').length") == 0
            assert tab.run("document.body.innerText").count("<script>document.title='owned'") > 14
        assert tab.console == []
        assert set(tab.asked) == {running.url}


def refresh(tab: Browser) -> None:
    """What happens every five seconds, and when somebody comes back to the tab."""
    tab.run("document.dispatchEvent(new Event('visibilitychange'))")


def test_refresh_changes_values_and_leaves_the_reader_alone(tmp_path: Path) -> None:
    """New values come into the page that is open: it is not loaded again, stays where it was scrolled to, and keeps the selection."""
    busy = node(*map(h100, range(8)))
    gpus = tuple(msgspec.structs.replace(gpu, fast=msgspec.structs.replace(gpu.fast or Fast(), power_watts=77.0)) for gpu in busy.gpus)
    gpus = (judged(gpus[0], LOST), *gpus[1:])
    later = msgspec.structs.replace(busy, gpus=gpus)
    with serving(agent=Agent(busy, past=curves_of(busy))) as running, browser(tmp_path) as tab:
        tab.open(running.url, height=400)
        row = "document.querySelector('#links tbody tr:nth-child(3) th b')"
        tab.run(f"window.mark = 1; scrollTo(0, 500); getSelection().selectAllChildren({row})")
        running.agent.latest, running.agent.past = later, curves_of(busy, later)
        refresh(tab)
        tab.until(lambda: "77\xa0W" in tab.run("document.querySelector('#gpus').innerText"), "the new power")
        assert tab.run("document.querySelector('#findings').innerText").count("reboot node") == 1
        assert tab.run("document.querySelectorAll('#gpus title')[2].textContent").endswith("77\xa0W to 523\xa0W, now 77\xa0W")
        assert tab.run("getSelection().toString()") == "2"
        assert tab.run("window.mark") == 1
        assert tab.run("scrollY") >= 500
        assert tab.loads == 1
        running.agent.latest = busy
        refresh(tab)
        tab.until(lambda: not tab.run("!!document.querySelector('#findings')"), "the end of the finding")
        fresh = "new DOMParser().parseFromString(text, 'text/html').body"
        assert tab.run(f"fetch('/').then((answer) => answer.text()).then((text) => {fresh}.isEqualNode(document.body))")
        assert tab.console == []


def test_a_value_that_is_being_selected_waits(tmp_path: Path) -> None:
    """Nobody loses what he is about to copy: the selected text changes when it is let go."""
    with serving(agent=Agent(node(h100()))) as running, browser(tmp_path) as tab:
        tab.open(running.url)
        tab.run("getSelection().selectAllChildren(document.querySelector('h1'))")
        running.agent.latest = msgspec.structs.replace(node(h100()), node="renamed", version="9.9.9")
        refresh(tab)
        tab.until(lambda: "9.9.9" in tab.run("document.querySelector('header').innerText"), "the new version")
        assert tab.run("getSelection().toString()") == "gpu-node-1"
        tab.run("getSelection().removeAllRanges()")
        refresh(tab)
        tab.until(lambda: tab.run("document.querySelector('h1').innerText") == "renamed", "the new name")


def test_page_says_when_it_is_out_of_date(tmp_path: Path) -> None:
    """An agent that does not answer is told of on top, with the time from which the values are, until it answers again."""
    with serving(agent=Agent(node(h100()))) as running, browser(tmp_path) as tab:
        tab.open(running.url)
        assert tab.run("document.querySelector('.stale').offsetHeight") == 0
        tab.command("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1, uploadThroughput=-1)
        refresh(tab)
        tab.until(lambda: "gpuwatch does not answer. This is how it was at" in tab.run("document.body.innerText"), "the note")
        assert "NVIDIA H100" in tab.run("document.body.innerText")
        tab.command("Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=-1, uploadThroughput=-1)
        refresh(tab)
        tab.until(lambda: tab.run("document.querySelector('.stale').offsetHeight") == 0, "the end of the note")


def test_without_scripts_the_browser_reloads_the_page(tmp_path: Path) -> None:
    """Where scripts are off the page says to load it again; where they run it does not."""
    with serving(agent=Agent(node(h100()))) as running, browser(tmp_path) as tab:
        tab.command("DOM.enable")
        found = []
        for scripts in (False, True):
            tab.open(running.url, scripts=scripts)
            tab.command("DOM.getDocument")
            found.append(tab.command("DOM.performSearch", query="//meta[@http-equiv='refresh']")["resultCount"])
    assert found == [1, 0]


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (760, False), (390, False), (390, True)])
def test_browser_fits_the_page_on_a_desk_and_on_a_phone(tmp_path: Path, width: int, *, dark: bool) -> None:
    """A failed GPU, its reasons, its curves and its XIDs are shown without a word on the console, and nothing sticks out to the right."""
    gpu = msgspec.structs.replace(judged(h100(up=False, fault="gpu_is_lost"), LOST), xids=(XID_79,))
    snapshot = msgspec.structs.replace(attributed(held(h100())), gpus=(gpu, judged(h100(1), OK), a100_mig(2)))
    with serving(agent=Agent(snapshot, past=curves_of(node(h100(), h100(1), a100_mig(2)), snapshot))) as running, browser(tmp_path) as tab:
        tab.open(running.url, width=width, dark=dark)
        assert tab.run("document.documentElement.scrollWidth") <= width
        assert "Drain the node and reboot it" in tab.run("document.body.innerText")
        assert tab.run("getComputedStyle(document.body).backgroundColor") == ("rgb(13, 17, 23)" if dark else "rgb(246, 248, 250)")
        assert tab.run("[...document.querySelectorAll('svg.curve')].every((one) => one.getBoundingClientRect().height === 28)")
        assert tab.console == []
