"""Why the kubelet's socket cannot be reached: the operating system tells it exactly, where gRPC says ``UNAVAILABLE`` to everything."""

from __future__ import annotations

import socket
from pathlib import Path


class KubeletFault(Exception):  # noqa: N818 (it is a fault, with a token)
    """The kubelet tells nothing. ``fault`` is the token, the text says why and what to do, in one line."""

    def __init__(self, fault: str, detail: str) -> None:
        super().__init__(detail)
        self.fault = fault


def try_socket(path: Path, deadline_seconds: float) -> None:
    """Connect and hang up.

    Raises:
        KubeletFault: ``no_directory``, ``no_socket``, ``permission``, ``not_listening``, ``timeout`` or ``unavailable``.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(deadline_seconds)
        try:
            probe.connect(str(path))
        except FileNotFoundError as error:
            raise _absent(path) from error
        except PermissionError as error:
            raise _forbidden(path) from error
        except ConnectionRefusedError as error:
            raise KubeletFault(
                "not_listening", f"nobody listens on {path}: the kubelet is down, and its old socket is left over"
            ) from error
        except (TimeoutError, BlockingIOError) as error:
            raise KubeletFault("timeout", f"{path} takes no connection within {deadline_seconds:g} s: is the kubelet hung?") from error
        except OSError as error:
            raise KubeletFault("unavailable", f"{path} cannot be connected to: {error}") from error


def _absent(path: Path) -> KubeletFault:
    try:
        has_directory = path.parent.is_dir()
    except PermissionError:
        return _forbidden(path)
    if has_directory:
        return KubeletFault("no_socket", f"{path.parent} has no {path.name}: the kubelet has not started, or has another root directory")
    return KubeletFault(
        "no_directory", f"there is no {path.parent}: mount that directory of the node, and check the kubelet's root directory"
    )


def _forbidden(path: Path) -> KubeletFault:
    return KubeletFault("permission", f"{path} cannot be opened: only uid 0 can connect, run gpuwatch as root (no capability is needed)")
