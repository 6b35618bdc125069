"""Reads one part of a YAML file, with the positions of its values. The rest of the file belongs to another program.

PyYAML's safe loader composes the file, and no object is ever constructed from it: a value is its text. The file is
limited in bytes, in depth and in the number of values, and each alias counts with the values that it stands for. So a
few lines of aliases of aliases (the "billion laughs") are refused before they grow.

This module needs the extra `yaml`, and is imported only to read a YAML file.

Spec: YAML 1.1, as PyYAML reads it; merge keys (yaml.org/type/merge.html).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from bridge.config.text.document import Document, at, read_text
from bridge.config.text.masking import mask
from bridge.config.text.positions import KeyPath, Span, Spot
from bridge.errors import ConfigError
from bridge.text.diagnostics import Diagnostic

_LIMIT_BYTES: Final = 256 * 1024
"""The most bytes of a file. A configuration has a few thousand, and PyYAML needs seconds for a megabyte."""
_DEEPEST: Final = 50
"""The most levels of nested values. An alias counts with the levels of its value."""
_MOST_VALUES: Final = 50_000
"""The most values and keys of a file. An alias counts with the values that it stands for."""

_STANDARD_TAG: Final = "tag:yaml.org,2002:"
_NULL_TAG: Final = f"{_STANDARD_TAG}null"
_COMMENT: Final = re.compile(r"#[^\n]*")
_QUOTED: Final = re.compile(r""" (?P<quote>['"])(?P<piece>.*?)(?P=quote)""")
"""A quoted piece in a message of PyYAML: a piece of the file, which may be a secret, or a character, or a token like
`<block end>`."""
_IN_A_VALUE: Final = re.compile(r"[^\s\"']")
_KEY_OR_TEXT: Final = re.compile(
    r"(?P<key>^[ \t]*(?:-[ \t]+)*[A-Za-z_][\w-]*:(?=\s|$))|[^\s\"']", re.MULTILINE
)

IsShown = Callable[[KeyPath, str], bool]
"""Whether the text at a path is certainly no secret, so that a diagnostic may show it."""


def read_yaml(path: Path, what: str, within: tuple[str, ...], is_shown: IsShown) -> Document:
    """Read the value at the keys `within` of a YAML file. The document has only this value, and is empty if the file
    has no such keys.

    Strings, numbers and booleans are all read as text; null is None.

    Raises:
        ConfigError: the file cannot be read, is no YAML, or exceeds a limit, or the value has a custom tag.
    """
    text = _bounded_text(path, what).replace("\r\n", "\n").replace("\r", "\n")
    try:
        loader = _BoundedLoader(text)
        root = loader.get_single_node()
        document = _PartReader(loader, path, text, is_shown).document(root, within)
    except yaml.MarkedYAMLError as exc:
        raise ConfigError([_syntax(path, text, exc)]) from exc
    except yaml.YAMLError as exc:
        raise ConfigError(
            [Diagnostic(path, "this is not valid YAML: it holds a character that YAML does not allow")]
        ) from exc
    return document


def _bounded_text(path: Path, what: str) -> str:
    try:
        size = path.stat().st_size
    except (OSError, ValueError):  # `read_text` reports it
        size = 0
    text = "" if size > _LIMIT_BYTES else read_text(path, what)
    if size > _LIMIT_BYTES or len(text.encode()) > _LIMIT_BYTES:
        raise ConfigError(
            [Diagnostic(path, f"it is larger than {_LIMIT_BYTES:,} bytes, the most that is read")]
        )
    return text


class _NotReadError(yaml.MarkedYAMLError):
    """The file is valid YAML, but exceeds a limit or has a value with a custom tag."""


class _BoundedLoader(yaml.SafeLoader):
    """Composes a file within the limits."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._values = 0
        self._below = [0]
        """The levels below the file, and below each open value, so far."""
        self._extents: dict[int, tuple[int, int]] = {}
        """The number of values in a finished node, and its levels, by the node's id. The composed tree keeps the nodes
        alive."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose the next value, or find the value of an alias."""
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # its stubs leave the parser out
        if self.check_event(yaml.AliasEvent):
            node = super().compose_node(parent, index)
            if id(node) not in self._extents:
                raise _NotReadError(None, None, "an alias stands inside its own value", mark)
            values, levels = self._extents[id(node)]
            self._count(values, levels, mark)
            return node
        before = self._values
        self._count(1, 1, mark)
        self._depth += 1
        self._below.append(0)
        node = super().compose_node(parent, index)
        self._depth -= 1
        levels = self._below.pop() + 1
        self._extents[id(node)] = (self._values - before, levels)
        self._below[-1] = max(self._below[-1], levels)
        return node

    def _count(self, values: int, levels: int, mark: yaml.Mark) -> None:
        self._values += values
        self._below[-1] = max(self._below[-1], levels)
        if self._depth + levels > _DEEPEST:
            raise _NotReadError(None, None, f"it is nested more than {_DEEPEST} levels deep", mark)
        if self._values > _MOST_VALUES:
            words = f"it has more than {_MOST_VALUES:,} values, counting the values of aliases"
            raise _NotReadError(None, None, words, mark)


class _PartReader:
    """Reads a part of a composed file."""

    def __init__(self, loader: _BoundedLoader, path: Path, text: str, is_shown: IsShown) -> None:
        self._loader = loader
        self._path = path
        self._text = text
        self._is_shown = is_shown
        self._positions: dict[KeyPath, Spot] = {}
        self._shown: set[Span] = set()

    def document(self, root: yaml.Node | None, within: tuple[str, ...]) -> Document:
        data: dict[str, Any] = {}
        node = root
        path: KeyPath = ()
        for step in within:
            pairs = [pair for pair in self._pairs(node) if pair[0].value == step]
            if not pairs:
                break
            key, node = pairs[-1]
            path = (*path, step)
            self._positions[path] = Spot(self._span(key), self._span(node))
        if node is not None and path == within:
            value = self._value(node, within)
            for step in reversed(within):
                value = {step: value}
            data = value
        return Document(self._path, data, self._positions, self._masked(root))

    def _value(self, node: yaml.Node, path: KeyPath) -> Any:
        if not node.tag.startswith(_STANDARD_TAG):
            raise _NotReadError(None, None, "a value with a custom tag is not supported", node.start_mark)
        if isinstance(node, yaml.ScalarNode):
            if self._is_shown(path, node.value):
                self._shown.add(self._span(node))
            return None if node.tag == _NULL_TAG else node.value
        if isinstance(node, yaml.SequenceNode):
            return [self._element(inner, (*path, index)) for index, inner in enumerate(node.value)]
        return {key.value: self._member(key, inner, (*path, key.value)) for key, inner in self._pairs(node)}

    def _element(self, node: yaml.Node, path: KeyPath) -> Any:
        self._positions[path] = Spot(None, self._span(node))
        return self._value(node, path)

    def _member(self, key: yaml.Node, node: yaml.Node, path: KeyPath) -> Any:
        self._positions[path] = Spot(self._span(key), self._span(node))
        return self._value(node, path)

    def _pairs(self, node: yaml.Node | None) -> list[tuple[yaml.ScalarNode, yaml.Node]]:
        """The keys and values of a mapping, including merged ones. Keys that are no text are left out."""
        if not isinstance(node, yaml.MappingNode):
            return []
        self._loader.flatten_mapping(node)
        return [(key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]

    def _span(self, node: yaml.Node) -> Span:
        written = self._text[node.start_mark.index : node.end_mark.index]
        return Span(node.start_mark.index, node.start_mark.index + len(written.rstrip()))

    def _masked(self, root: yaml.Node | None) -> str:
        """The text with comments, and all values that must not be shown, masked."""
        pieces, end = [], 0
        spans = {self._span(node): is_key for node, is_key in _scalars(root)}
        for span in sorted(spans, key=lambda span: span.start):
            written = self._text[span.start : span.end]
            is_shown = spans[span] or span in self._shown
            pieces += [
                _COMMENT.sub(_stars, self._text[end : span.start]),
                written if is_shown else _IN_A_VALUE.sub("*", written),
            ]
            end = span.end
        return mask("".join([*pieces, _COMMENT.sub(_stars, self._text[end:])]), ())


def _scalars(root: yaml.Node | None) -> Iterator[tuple[yaml.ScalarNode, bool]]:
    """Yield each scalar of a tree once, and whether it is a key."""
    seen: set[int] = set()
    waiting = [] if root is None else [(root, False)]
    while waiting:
        node, is_key = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            yield node, is_key
        elif isinstance(node, yaml.SequenceNode):
            waiting += [(inner, False) for inner in node.value]
        elif isinstance(node, yaml.MappingNode):
            waiting += [pair for key, inner in node.value for pair in ((key, True), (inner, False))]


def _stars(match: re.Match[str]) -> str:
    return "*" * len(match[0])


def _without_piece(match: re.Match[str]) -> str:
    return match[0] if len(match["piece"]) == 1 or match["piece"].startswith("<") else ""


def _syntax(path: Path, text: str, exc: yaml.MarkedYAMLError) -> Diagnostic:
    """A diagnostic from an error of PyYAML. Everything in the line except its key is masked, because its values are not
    known."""
    mark = exc.problem_mark or exc.context_mark
    problem = _QUOTED.sub(_without_piece, ", ".join(filter(None, (exc.context, exc.problem))))
    message = problem if isinstance(exc, _NotReadError) else f"this is not valid YAML: {problem}"
    if mark is None:
        return Diagnostic(path, message)
    masked = _KEY_OR_TEXT.sub(lambda match: match["key"] or "*", text)
    return at(path, masked, Span(mark.index, mark.index + 1), message)
