"""Which labels of a pod become labels of its metrics: only those that the operator has named.

Two pod labels may differ in characters that Prometheus has not (``a-b``, ``a.b``, ``a/b``). A made name is therefore refused when two
would be equal, or when it would hide one of ours; a mapping gives each a name of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from gpuwatch.device.readings import Struct
from gpuwatch.kube.objects import Pod

MAX_LABELS = 16
"""Each adds to every series of a job; Prometheus servers with a label limit (often 30) would refuse the whole scrape."""
MAX_VALUE_LENGTH = 253
"""Longest text that is passed on. Kubernetes allows 63 bytes in a label and 253 in a name; only junk is longer."""
RESERVED_NAMES = frozenset(
    {
        *("node", "gpu", "uuid", "model", "mig_uuid", "profile", "gpu_instance", "compute_instance"),
        *("namespace", "pod", "container", "job_kind", "job_name", "replica_type", "replica_index", "framework"),
        *("framework_reason", "queue", "requested", "shared", "direction"),
        *("job", "instance", "le", "quantile"),
    }
)
"""Our own labels of a device and of its holder, those that Prometheus sets on a target, and those of histograms and summaries."""

_PREFIX = "label_"
_SHOWN_LENGTH = 60
_KEY = re.compile(r"(?:(?=.{1,253}/)[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?(?=.{1,63}\Z)[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,322}")  # a made name may be that long
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")


class LabelMap(Struct, frozen=True, kw_only=True):
    """Pod label keys and the metric label each becomes, in the operator's order."""

    keys: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """Names of the metric labels, in the order of :meth:`labels_of`."""

    @classmethod
    def parse(cls, setting: object) -> LabelMap:
        """Return the map that ``setting`` (``kubernetes.pod_labels``) asks for.

        Args:
            setting: A mapping of pod label key to metric label name; or a list of keys, whose names are made (``team`` becomes
                ``label_team``); or text with such keys between commas, each alone or as ``key=name``; or nothing.

        Raises:
            ValueError: Something is refused; the message is one line that names it and says what is expected.
        """
        names: dict[str, str] = {}
        for given_key, given_name in _pairs(setting):
            key, name = _checked(given_key, given_name)
            if key in names:
                raise ValueError(f"pod label {_shown(key)} is named twice; expected each once")
            other = next((known for known, taken in names.items() if taken == name), None)
            if other is not None:
                raise ValueError(
                    f"pod labels {_shown(other)} and {_shown(key)} would both become {_shown(name)}; "
                    "expected a name of its own for each (a mapping of pod label to name)"
                )
            names[key] = name
        if len(names) > MAX_LABELS:
            raise ValueError(f"{len(names)} pod labels are named; expected at most {MAX_LABELS}")
        return cls(keys=tuple(names), names=tuple(names.values()))

    def labels_of(self, pod: Pod | None) -> tuple[str, ...]:
        """Return the values of ``pod``, one for each of :attr:`names`; empty where it has no such label or the pod is not known."""
        return tuple(clean_text(pod.labels.get(key, "")) if pod is not None else "" for key in self.keys)


def clean_text(text: str) -> str:
    """Return ``text`` as a label value may carry it: of bounded length, and with nothing that UTF-8 cannot write."""
    return text[:MAX_VALUE_LENGTH].encode("utf-8", "replace").decode("utf-8")


def _pairs(setting: object) -> Iterable[tuple[object, object]]:
    """Key and name of each entry, not yet checked."""
    match setting:
        case None:
            return
        case str():
            for entry in filter(None, (entry.strip() for entry in setting.split(","))):
                key, equals, name = (part.strip() for part in entry.partition("="))
                yield key, name if equals else _made_name(key)
        case Mapping():
            yield from setting.items()
        case list() | tuple():
            for key in setting:
                yield key, _made_name(key) if isinstance(key, str) else None
        case _:
            raise ValueError(f"{_shown(setting)} is not allowed; expected a mapping of pod label to metric label, or a list of pod labels")


def _made_name(key: str) -> str:
    return _PREFIX + _NOT_IN_NAMES.sub("_", key)


def _checked(key: object, name: object) -> tuple[str, str]:
    """Both, unless they are no pod label key or no name that a metric label may have."""
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise ValueError(f"{_shown(key)} is no pod label; expected a key such as team or app.kubernetes.io/part-of")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"pod label {_shown(key)}: {_shown(name)} is no name for a metric label; expected letters, digits and _, not first a digit"
        )
    if name.startswith("__") or name in RESERVED_NAMES:
        raise ValueError(f"pod label {_shown(key)}: the name {_shown(name)} is taken by gpuwatch or Prometheus; expected another")
    return key, name


def _shown(value: object) -> str:
    """``value`` for a message of one line."""
    try:
        text = repr(value)
    except ValueError:  # Python does not print whole numbers of more than 4300 digits
        text = f"a huge {type(value).__name__}"
    return text if len(text) <= _SHOWN_LENGTH else text[: _SHOWN_LENGTH - 1] + "…"
