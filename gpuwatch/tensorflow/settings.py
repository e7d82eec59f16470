"""What the environment says of the export. Nothing here fails: a value that cannot be used switches its feature off, and is told once."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

DEFAULT_PORT: Final = 9839
"""Next to that of the agent."""
THIS_MACHINE: Final = "127.0.0.1"
NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""Kubernetes puts the pod's namespace there, unless ``automountServiceAccountToken`` is false."""
_OFF: Final = ("0", "off", "false", "no", "none")
_MOST_TEXT_BYTES: Final = 253
"""Of a name in Kubernetes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where the measures go, and who this process is."""

    port: int | None = DEFAULT_PORT
    """``GPUWATCH_TENSORFLOW_PORT``: of the endpoint; ``None``: there is none (``0`` or ``off``)."""
    address: str = THIS_MACHINE
    """``GPUWATCH_TENSORFLOW_ADDRESS``: empty for all interfaces, which is the default in a pod, since Prometheus comes from outside of it.

    Elsewhere it is this machine only: nobody opens a port to a network by training a model on a workstation.
    """
    textfile_directory: Path | None = None
    """``GPUWATCH_TEXTFILE_DIRECTORY``: ``None``: no file is written."""
    namespace: str = ""
    """``POD_NAMESPACE``, else what Kubernetes mounts; empty outside of a cluster."""
    pod: str = ""
    """``POD_NAME``, else ``HOSTNAME``, which is the pod's name unless the pod uses the host's network or has a ``hostname``."""
    container: str = ""
    """``CONTAINER_NAME``; it need be said only where two containers of one pod train and write text files."""
    agent_url: str | None = None
    """``GPUWATCH_AGENT_URL``: of the agent on this pod's node, with ``user:password@`` where it asks for them. Never logged."""
    problems: tuple[str, ...] = ()
    """One line for each value that could not be used."""


def read_settings(
    environment: Mapping[str, str] = os.environ,
    *,
    namespace_file: Path = NAMESPACE_FILE,
    hostname: Callable[[], str] = socket.gethostname,
) -> Settings:
    """The settings in ``environment``, which is read once, when this is called. Empty is as good as not there."""
    given = {name: text.strip() for name, text in environment.items() if text.strip()}
    problems: list[str] = []
    return Settings(
        port=_port(given.get("GPUWATCH_TENSORFLOW_PORT", ""), problems),
        address=_address(given, problems),
        textfile_directory=_directory(given.get("GPUWATCH_TEXTFILE_DIRECTORY", ""), problems),
        namespace=(given.get("POD_NAMESPACE") or _first_line(namespace_file))[:_MOST_TEXT_BYTES],
        pod=(given.get("POD_NAME") or given.get("HOSTNAME") or hostname())[:_MOST_TEXT_BYTES],
        container=given.get("CONTAINER_NAME", "")[:_MOST_TEXT_BYTES],
        agent_url=_agent_url(given.get("GPUWATCH_AGENT_URL", ""), problems),
        problems=tuple(problems),
    )


def _port(text: str, problems: list[str]) -> int | None:
    if not text:
        return DEFAULT_PORT
    if text.lower() in _OFF:
        return None
    if text.isascii() and text.isdigit() and len(text) <= len("65535") and 0 < int(text) <= 65535:  # noqa: PLR2004 (a port)
        return int(text)
    problems.append(f"GPUWATCH_TENSORFLOW_PORT={text!r}: expected a port from 1 to 65535, or off; there is no endpoint")
    return None


def _address(given: Mapping[str, str], problems: list[str]) -> str:
    text = given.get("GPUWATCH_TENSORFLOW_ADDRESS", "")
    if not text:
        return "" if "KUBERNETES_SERVICE_HOST" in given else THIS_MACHINE
    try:
        return str(ipaddress.ip_address(text.removeprefix("[").removesuffix("]")))
    except ValueError:
        problems.append(
            f"GPUWATCH_TENSORFLOW_ADDRESS={text!r}: expected an IP address such as 0.0.0.0 or ::; the endpoint serves this machine only"
        )
        return THIS_MACHINE


def _directory(text: str, problems: list[str]) -> Path | None:
    if not text:
        return None
    if not text.startswith("/") or "\0" in text:
        problems.append(f"GPUWATCH_TEXTFILE_DIRECTORY={text!r}: expected a directory from / on; no text file is written")
        return None
    return Path(text)


def _agent_url(text: str, problems: list[str]) -> str | None:
    """The text itself is in no message: a password may be in it."""
    if not text:
        return None
    try:
        parts = urlsplit(text)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and not parts.query and not parts.fragment:
            return text
    except ValueError:
        pass
    problems.append("GPUWATCH_AGENT_URL: expected a URL such as http://10.0.0.7:9838; nothing of the agent is shown")
    return None


def _first_line(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip().partition("\n")[0]
    except (OSError, ValueError):
        return ""
