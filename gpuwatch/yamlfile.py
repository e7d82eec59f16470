"""A small YAML file, read strictly: what a person most likely did wrong is refused in one line with its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES = 1 << 20
"""A configuration is a page of text; a larger file is some other file."""


class YamlFileError(Exception):
    """The file cannot be read as one mapping; the message is one line and does not name the file."""


class _StrictLoader(yaml.SafeLoader):
    """Plain data only, without the two features that hide a mistake: a key given twice, and aliases (which can also grow without bound)."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Refuse aliases before they are followed."""
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases (*name) are not supported; write the value out", problem_mark=mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key that is given twice, where PyYAML would silently keep the last."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"the key {key.value!r} is given twice", problem_mark=key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def read_mapping(path: Path) -> dict[Any, Any]:
    """Return the mapping in the YAML file at ``path``; an empty file is an empty mapping.

    Raises:
        YamlFileError: Missing, unreadable, a directory, too large, not UTF-8, not YAML, or not a mapping.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except IsADirectoryError:
        raise YamlFileError("is a directory; expected a YAML file") from None
    except OSError as error:
        raise YamlFileError(f"cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise YamlFileError("is no possible file name") from None
    if len(content) > MAX_BYTES:
        raise YamlFileError(f"is larger than {MAX_BYTES} bytes; expected a small YAML file")
    try:
        return parse_mapping(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise YamlFileError(f"is not UTF-8 text (byte {error.start})") from None


def parse_mapping(text: str) -> dict[Any, Any]:
    """Return the mapping that ``text`` holds; see :func:`read_mapping`."""
    try:
        data = yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - a SafeLoader made stricter
    except yaml.MarkedYAMLError as error:
        raise YamlFileError(_placed(error)) from None
    except yaml.reader.ReaderError as error:
        raise YamlFileError(f"broken YAML: character {error.position} is not allowed ({error.reason})") from None
    except RecursionError:
        raise YamlFileError("broken YAML: nested too deeply") from None
    except (ValueError, LookupError, ArithmeticError, AttributeError, TypeError) as error:
        # PyYAML lets these through for scalars that look like a date or a number and are none, such as 2026-99-99.
        raise YamlFileError(f"broken YAML: a value is not what it looks like ({_one_line(str(error))}); put it in quotes") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise YamlFileError(f"holds a {type(data).__name__} at its top; expected keys and values, such as 'log:'")
    return data


def _placed(error: yaml.MarkedYAMLError) -> str:
    """The parser's complaint with line and column as editors count them."""
    mark = error.problem_mark or error.context_mark
    place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    return f"broken YAML{place}: {_one_line(error.problem or error.context or 'cannot be parsed')}"


def _one_line(text: str) -> str:
    """``text`` without line breaks and control characters, shortened."""
    return "".join(letter if letter.isprintable() else " " for letter in text)[:200]
