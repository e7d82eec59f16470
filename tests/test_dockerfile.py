"""The image and the service unit, as far as they can be proved without a container engine: the build steps run for real in a directory."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch import __version__
from gpuwatch.config import load

ROOT = Path(__file__).parents[1]
COMPILERS = ("gcc", "g++", "build-essential", "clang", "cargo", "make", "-dev")


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions and their arguments, continued lines joined, comments left out."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in text.splitlines() if line.strip()]


INSTRUCTIONS = instructions()
FINAL_STAGE = INSTRUCTIONS[max(index for index, (name, _) in enumerate(INSTRUCTIONS) if name == "FROM") :]


def test_base_is_pinned() -> None:
    """Every stage starts from one base, pinned to a full version and to a Debian release."""
    [base] = [value.removeprefix("PYTHON_IMAGE=") for name, value in INSTRUCTIONS if name == "ARG" and value.startswith("PYTHON_IMAGE=")]
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+(@sha256:[0-9a-f]{64})?", base)
    assert {value.split()[0] for name, value in INSTRUCTIONS if name == "FROM"} == {"${PYTHON_IMAGE}"}


def test_the_digest_of_the_base_is_a_release_s_choice() -> None:
    """Dockerfile and docs/image.md show the same base with a placeholder for its digest, and the page says where the digest comes from."""
    [base] = [value.removeprefix("PYTHON_IMAGE=") for name, value in INSTRUCTIONS if name == "ARG" and value.startswith("PYTHON_IMAGE=")]
    tag = base.partition("@")[0]
    page = (ROOT / "docs" / "image.md").read_text(encoding="utf-8")
    for text in ((ROOT / "Dockerfile").read_text(encoding="utf-8"), page):
        assert f"PYTHON_IMAGE={tag}@sha256:<digest>" in text
        assert set(re.findall(r"python:3[\w.-]+", text)) == {tag}
    assert f"docker buildx imagetools inspect {tag}" in page


def test_labels() -> None:
    """The image says what it is, of which version (the package's), of which commit, and where its source is."""
    [text] = [value for name, value in FINAL_STAGE if name == "LABEL"]
    labels = dict(re.findall(r'org\.opencontainers\.image\.([a-z]+)="([^"]*)"', text))
    assert labels["version"] == __version__
    assert labels["revision"] == "${REVISION}"
    assert ("ARG", "REVISION=unknown") in FINAL_STAGE
    assert labels["licenses"] == "Apache-2.0"
    assert set(labels) == {"title", "description", "version", "revision", "source", "documentation", "vendor", "licenses"}


def test_final_stage_only_copies() -> None:
    """The final image runs no build step, holds no compiler, and is not root."""
    assert not [value for name, value in FINAL_STAGE if name == "RUN"]
    assert not [word for name, value in INSTRUCTIONS if name == "RUN" for word in json.loads(value) if word.endswith(COMPILERS)]
    assert ("USER", "65534:65534") in FINAL_STAGE
    assert [value for name, value in FINAL_STAGE if name == "COPY"] == ["--from=build /opt/gpuwatch /opt/gpuwatch"]


def test_final_stage_runs_the_agent() -> None:
    """The image starts the agent directly (signals reach it), asks the NVIDIA runtime for NVML only, and names its port."""
    assert ("ENTRYPOINT", '["gpuwatch"]') in FINAL_STAGE
    assert ("CMD", '["run"]') in FINAL_STAGE
    assert ("EXPOSE", "9838") in FINAL_STAGE
    environment = " ".join(value for name, value in FINAL_STAGE if name == "ENV")
    assert "NVIDIA_VISIBLE_DEVICES=all" in environment
    assert "NVIDIA_DRIVER_CAPABILITIES=utility" in environment
    assert "MALLOC_ARENA_MAX=1" in environment
    assert "PYTHONDONTWRITEBYTECODE=1" in environment


def test_copied_sources_exist_and_are_in_context() -> None:
    """Each copied path exists and is let through by .dockerignore, and nothing else is."""
    copied = {source for name, value in INSTRUCTIONS if name == "COPY" and "--from" not in value for source in value.split()[:-1]}
    assert [source for source in copied if not (ROOT / source).exists()] == []
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in lines
    assert {line.removeprefix("!") for line in lines if line.startswith("!")} == {source.split("/")[0] for source in copied}


def test_build_steps_give_a_working_command(tmp_path: Path) -> None:
    """The build stage's own commands, run in a directory, give a ``gpuwatch`` from hashed wheels that starts without the source tree."""
    for name, value in INSTRUCTIONS[: -len(FINAL_STAGE)]:
        if name == "COPY":
            *sources, target = value.split()
            for source in sources:
                _copy(ROOT / source, Path(f"{tmp_path}{target}"), into=target.endswith("/"))
        elif name == "RUN":
            words = [f"{tmp_path}{word}" if word.startswith(("/opt", "/source", "/wheel")) else word for word in json.loads(value)]
            words[0] = sys.executable if words[0] == "python" else words[0]
            done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
    environment = {"PATH": os.defpath}
    command = [f"{tmp_path}/opt/gpuwatch/bin/gpuwatch", "scenarios"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert "mixed-fleet" in done.stdout
    _assert_repeatable(tmp_path)


def _assert_repeatable(place: Path) -> None:
    """Every module is compiled, with the hash of its source and no time in it; our wheel comes out the same once more."""
    compiled = list((place / "opt" / "gpuwatch" / "lib").rglob("*.pyc"))
    assert len(compiled) > 1000
    # PEP 552: the second word is 1 for a file that holds a hash which nobody need check.
    assert [path for path in compiled if int.from_bytes(path.read_bytes()[4:8], "little") != 1] == []
    again = ["wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", f"{place}/again", f"{place}/source"]
    subprocess.run([f"{place}/opt/build/bin/pip", *again], capture_output=True, check=True, cwd=place)
    [first], [second] = (place / "wheel").glob("*.whl"), (place / "again").glob("*.whl")
    assert first.read_bytes() == second.read_bytes()


def _copy(source: Path, target: Path, *, into: bool) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target / source.name if into else target)


@pytest.mark.parametrize("lock", ["runtime.txt", "dev.txt", "tensorflow.txt", "build.txt", "tools.txt"])
def test_locks_are_complete(lock: str) -> None:
    """Each lock pins every requirement to one version with hashes, and names no index."""
    text = (ROOT / "requirements" / lock).read_text(encoding="utf-8")
    entries = re.split(r"\n(?=[a-z])", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).strip())
    assert [entry for entry in entries if not re.match(r"[a-z0-9-]+==\S+", entry) or "--hash=sha256:" not in entry] == []
    assert "://" not in text


def test_runtime_lock_is_part_of_the_development_lock() -> None:
    """What the checks test is what the image holds: the same versions."""
    runtime, development = (
        set(re.findall(r"^([a-z0-9-]+==\S+)", (ROOT / "requirements" / name).read_text(encoding="utf-8"), flags=re.MULTILINE))
        for name in ("runtime.txt", "dev.txt")
    )
    assert runtime <= development


def test_service_unit_listens_only_where_it_may() -> None:
    """Without the right to read the kernel log the service does not try, or GpuXidSourceDown would fire on every sound machine."""
    text = (ROOT / "deploy" / "systemd" / "gpuwatch.service").read_text(encoding="utf-8")
    environment = dict(re.findall(r"^Environment=(\w+)=(.*)$", text, flags=re.MULTILINE))
    assert "\nCapabilityBoundingSet=\n" in text
    assert load(None, environment=environment).read.kernel_log == ""


def test_service_unit_is_valid(tmp_path: Path) -> None:
    """The unit is accepted by systemd, where systemd is installed; every line is a section or a setting in any case."""
    text = (ROOT / "deploy" / "systemd" / "gpuwatch.service").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"\[\w+\]|\w+=.*", line)] == []
    for setting in (
        "DynamicUser=yes",
        "ProtectSystem=strict",
        "NoNewPrivileges=yes",
        "DevicePolicy=closed",
        "ExecStart=/opt/gpuwatch/bin/gpuwatch run",
    ):
        assert setting in lines
    if analyze := shutil.which("systemd-analyze"):
        unit = tmp_path / "gpuwatch.service"
        # The command is not installed here; its existence is not what is tested.
        unit.write_text(text.replace("/opt/gpuwatch/bin/gpuwatch", "/bin/true"), encoding="utf-8")
        done = subprocess.run([analyze, "verify", unit], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
