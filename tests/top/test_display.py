"""The live table in a real terminal, and what is printed where there is none."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from gpuwatch.snapshot import Reason, Verdict
from serving import Agent, Running, serving
from snapshots import a100_mig, attributed, h100, held, hostile, judged, node
from terminal import ROOT, Terminal, top

LOST = Verdict(state="failed", action="reboot_node", reasons=(Reason(code="xid_79", severity="page", action="reboot_node"),))
OK = Verdict(state="ok")
DEAD = "http://127.0.0.1:1"


@pytest.fixture(name="node_a")
def _node_a() -> Iterator[Running]:
    """A node with a sound GPU, one in MIG mode and one that is lost."""
    gpus = (judged(h100(), OK), judged(a100_mig(), OK), judged(h100(2, up=False, fault="gpu_is_lost"), LOST))
    uses = (held(h100()), held(a100_mig(), "bert-0", mig_uuid="MIG-1-0"), held(h100(2), "resnet-worker-1"))
    with serving(agent=Agent(msgspec.structs.replace(attributed(*uses), gpus=gpus))) as running:
        yield running


@pytest.fixture(name="node_b")
def _node_b() -> Iterator[Running]:
    """A node of eight busy GPUs whose name is long."""
    snapshot = msgspec.structs.replace(node(*map(h100, range(8))), node="gpu-pool-europe-b-0017.example.org")
    with serving(agent=Agent(snapshot)) as running:
        yield running


def printed(*arguments: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """``gpuwatch top`` where there is no terminal."""
    environment = {"PATH": os.defpath, "HOME": "/nonexistent", "LANG": "C.UTF-8"} | variables
    command = [sys.executable, "-m", "gpuwatch", "top", *arguments]
    return subprocess.run(command, capture_output=True, check=False, env=environment, cwd=ROOT, stdin=subprocess.DEVNULL)


def refusal(done: subprocess.CompletedProcess[bytes]) -> str:
    """The last line with which it left with 2."""
    assert (done.returncode, done.stdout) == (2, b"")
    return done.stderr.decode().splitlines()[-1]


def settled(screen: str) -> bool:
    """Whether there is a table."""
    return "STATE" in screen


def test_one_node_on_eighty_columns(node_a: Running, compare_expected: Callable[[str, str], None]) -> None:
    """Title, node, and a row for each GPU and MIG instance."""
    with top("--url", node_a.url) as terminal:
        compare_expected("top/one-node.txt", terminal.until(lambda text: "failed   resnet" in text, "the last row"))


def test_several_nodes_one_of_them_silent(node_a: Running, node_b: Running, compare_expected: Callable[[str, str], None]) -> None:
    """Each node has its line, the silent one with its reason; the rows name their node and are sorted across all."""
    with top("--url", node_a.url, "--url", node_b.url, "--url", DEAD, "--sort", "state") as terminal:
        screen = terminal.until(lambda text: text.count("GPUs:") == 2 and "refused" in text and "\n1.1" in text, "all three")
        compare_expected("top/three-nodes.txt", screen)


def test_rows_that_do_not_fit_are_a_key_away(node_b: Running, compare_expected: Callable[[str, str], None]) -> None:
    """On a low terminal the last line says what is hidden, and keys move there and sort; a new size is filled at once."""
    with top("--url", node_b.url, lines=8) as terminal:
        assert "rows 1 to 4 of 8" in terminal.until(settled, "the table")
        terminal.press(b"\x1b[B")
        terminal.until(lambda text: "rows 2 to 5 of 8" in text, "the next row")
        terminal.press(b" ")
        compare_expected("top/low-terminal.txt", terminal.until(lambda text: "rows 5 to 8 of 8" in text, "the last rows"))
        terminal.press(b"s")
        terminal.until(lambda text: "by use" in text, "another order")
        terminal.resize(30, 120)
        wide = terminal.until(lambda text: "rows" not in text and "H100" in text, "all rows")
        assert "gpu-pool-europe-b-0017.example.org 8 GPUs: 8 up" in wide


def test_values_change_while_it_runs(node_a: Running) -> None:
    """What an agent tells later is shown; one that ends is told of, and its rows go, since they are old."""
    with top("--url", node_a.url, "--interval", "0.5") as terminal:
        terminal.until(settled, "the table")
        node_a.agent.latest = node(h100(7))
        terminal.until(lambda text: "\n7    H100 80GB" in text and "failed" not in text, "the new GPU")
    with serving(agent=Agent(node(h100()))) as short, top("--url", short.url, "--interval", "0.5") as terminal:
        terminal.until(settled, "the table")
        short.call(lambda: short.server._listener.close() if short.server._listener else None)
        short.call(lambda: short.server._accepting.cancel() if short.server._accepting else None)
        gone = terminal.until(lambda text: "does not answer: connection refused" in text, "the end of the agent")
    assert "H100" not in gone


@pytest.mark.parametrize(
    ("leave", "code"),
    [
        (lambda terminal: terminal.press(b"q"), 0),
        (lambda terminal: terminal.press(b"\x03"), 0),
        (lambda terminal: terminal.process.send_signal(signal.SIGTERM), 143),
    ],
    ids=["q", "ctrl-c", "sigterm"],
)
def test_terminal_is_left_as_it_was(node_a: Running, leave: Callable[[Terminal], None], code: int) -> None:
    """However it ends, the echo, the cursor and the screen that was there before come back."""
    with top("--url", node_a.url) as terminal:
        terminal.until(settled, "the table")
        assert terminal.modes != terminal.modes_before
        leave(terminal)
        assert terminal.end() == code
        assert terminal.modes == terminal.modes_before
    raw = bytes(terminal.raw)
    assert raw.startswith(b"\x1b[?1049h")
    assert raw.rstrip().endswith(b"\x1b[?1049l")
    assert raw.count(b"\x1b[?25l") == raw.count(b"\x1b[?25h") == 1


def test_hostile_text_does_not_reach_the_terminal() -> None:
    """The only control codes are ours, whatever names an agent tells."""
    evil = "\x1b]0;owned\x07\x1b[2J\u202egnp.exe"
    gpu = msgspec.structs.replace(h100(), identity=msgspec.structs.replace(h100().identity, model=evil))
    snapshot = msgspec.structs.replace(hostile(), node=evil, detail=evil, gpus=(gpu, *hostile().gpus))
    with serving(agent=Agent(snapshot)) as running, top("--url", running.url, "--url", DEAD) as terminal:
        screen = terminal.until(settled, "the table")
    assert "\\x1b]0;owned" in screen
    assert b"]0;owned\x07" not in terminal.raw
    assert b"\x1b[2J" not in terminal.raw
    assert "\u202e" not in terminal.raw.decode()


def test_a_simulated_node_lives_in_the_terminal() -> None:
    """--scenario needs no agent: the values move, and q ends it all."""
    with top("--scenario", "training") as terminal:
        screen = terminal.until(lambda text: "bert worker 6" in text and "700W" in text, "eight workers")
        assert "simulated-node SIMULATED 8 GPUs" in screen
        terminal.press(b"q")
        assert terminal.end() == 0


def test_one_table_without_control_codes(node_a: Running, compare_expected: Callable[[str, str], None]) -> None:
    """--once prints one table and leaves; where there is no terminal that is all there ever is, without colours."""
    done = printed("--once", "--url", node_a.url)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\x1b" not in done.stdout
    compare_expected("top/once.txt", done.stdout.decode())
    assert printed("--url", node_a.url).stdout == done.stdout
    with top("--once", "--url", node_a.url) as terminal:
        assert terminal.end() == 0
        assert terminal.modes == terminal.modes_before
    assert b"\x1b[?1049h" not in terminal.raw


def test_a_terminal_that_knows_only_ascii_gets_ascii(node_a: Running) -> None:
    """Bars, signs and names are told in letters that it has."""
    done = printed("--once", "--url", node_a.url, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"##### " in done.stdout
    assert b"61/87C" in done.stdout


def test_json_for_scripts(node_a: Running) -> None:
    """--json has every node with its rows, filtered and sorted, in base units; an agent that is silent is in it, and costs exit code 1."""
    done = printed("--json", "--url", node_a.url, "--url", DEAD, "--job", "resnet-worker", "--sort", "state")
    first, dead = json.loads(done.stdout)
    assert done.returncode == 1
    assert [(row["gpu"], row["state"], row["power_watts"]) for row in first["rows"]] == [("2", "failed", None), ("0", "ok", 523.4)]
    assert first["rows"][1]["memory_used_bytes"] == 62 << 30
    assert (dead["source"], dead["problem"], dead["rows"]) == (DEAD, "connection refused", [])


def test_filter_that_finds_nothing_says_so(node_a: Running) -> None:
    """No empty table without a word."""
    assert b"no GPU is held by a job like 'nobody'" in printed("--url", node_a.url, "--job", "nobody").stdout


def test_scenario_once() -> None:
    """A simulated node at a chosen moment, as for the other commands."""
    done = printed("--once", "--scenario", "gpu-lost", "--at", "120")
    assert done.returncode == 0
    assert b"SIMULATED" in done.stdout
    assert b"failed" in done.stdout


def test_without_rich_one_line_says_what_to_install(tmp_path: Path) -> None:
    """The extra is named with the pip of this very interpreter, and the exit code is 2."""
    (tmp_path / "rich").mkdir()
    (tmp_path / "rich" / "__init__.py").write_text("raise ModuleNotFoundError(name='rich')\n")
    [line] = printed("--once", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}").stderr.decode().splitlines()
    assert line == f"gpuwatch: top needs rich: {sys.executable} -m pip install 'gpuwatch[top]'"
    assert printed("--once", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}").returncode == 2


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    """What cannot be meant is refused before anything is asked; a password is never told."""
    (tmp_path / "auth").write_text("nobody-with-secret\n")
    assert "expected the address of an agent" in refusal(printed("--url", "ftp://x"))
    assert "expected the address of an agent" in refusal(printed("--url", "http://"))
    assert "--url" in refusal(printed("--url", "http://x:99999"))
    line = refusal(printed("--url", "https://me:secret@x"))
    assert "--auth-file" in line
    assert "secret" not in line
    assert refusal(printed("--auth-file", str(tmp_path / "auth"))).endswith("expected USER:PASSWORD")
    assert "secret" not in refusal(printed(GPUWATCH_TOP_AUTH="secret"))
    assert "No such file" in refusal(printed("--auth-file", "/nonexistent")).replace("no such", "No such")
    assert "--ca" in refusal(printed("--ca", str(tmp_path / "auth")))
    assert "--cert" in refusal(printed("--cert", str(tmp_path / "auth")))
    assert "--key needs --cert" in refusal(printed("--key", str(tmp_path / "auth")))
    assert "--scenario goes without --url" in refusal(printed("--scenario", "idle", "--url", DEAD))
    assert "nan" in refusal(printed("--interval", "nan"))
