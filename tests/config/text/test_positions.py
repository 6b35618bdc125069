"""The locator, against what `tomllib` makes of the same document."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.config.text.positions import KeyPath, Positions, Span, locate, place_of

BARE = st.text("abcXYZ019_-", min_size=1, max_size=5)
ANY_TEXT = st.text("aB0 \"'\\#[]{}=.,\tä\u4e2d\U0001f600", max_size=5)
GAPS = st.sampled_from(["", " ", "\t", "  "])
LINES = st.sampled_from(["", "\n", " # a = 1\n", "\n# [b]\n\n", ' # """ \n', " # '\n"])


def basic(text: str) -> str:
    escaped = {'"': r"\"", "\\": r"\\", "#": r"\u0023"}
    return '"' + "".join(escaped.get(one, one) for one in text) + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", " ") + "'"


@st.composite
def keys(draw: st.DrawFn) -> str:
    return draw(st.one_of(BARE, ANY_TEXT.map(basic), ANY_TEXT.map(literal)))


@st.composite
def dotted(draw: st.DrawFn) -> str:
    dot = draw(GAPS) + "." + draw(GAPS)
    return dot.join(draw(st.lists(keys(), min_size=1, max_size=3)))


SCALARS = st.one_of(
    st.sampled_from(
        [
            "1",
            "-0.5",
            "true",
            "inf",
            "0x1F",
            "1_000",
            "1e5",
            "1979-05-27 07:32:00",
            "1979-05-27T07:32:00Z",
            "07:32:00",
        ]
    ),
    ANY_TEXT.map(basic),
    ANY_TEXT.map(literal),
    st.sampled_from(
        [
            '"""a\nb"""',
            '"""\n"quoted" and ""two\\"""" """',
            '"""a"""""',
            "'''a\n'b' # no comment'''",
            "'''a'''''",
            '"""\\\n  a"""',
            '""',
            '""""""',
            "''''''",
            '"[a]"',
            "'{b = 1}'",
        ]
    ),
)


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    items = draw(st.lists(inner, max_size=3))
    spaced = [draw(LINES) + item + draw(LINES) for item in items]
    comma = "," if items and draw(st.booleans()) else ""
    return "[" + ",".join(spaced) + comma + draw(LINES) + "]"


@st.composite
def inline_tables(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    pairs = [
        f"{draw(GAPS)}{draw(dotted())}{draw(GAPS)}={draw(GAPS)}{draw(inner)}{draw(GAPS)}"
        for _ in range(draw(st.integers(0, 3)))
    ]
    return "{" + ",".join(pairs) + "}"


VALUES = st.recursive(SCALARS, lambda inner: st.one_of(arrays(inner), inline_tables(inner)), max_leaves=5)


@st.composite
def lines(draw: st.DrawFn) -> str:
    kind = draw(st.sampled_from(["pair", "pair", "pair", "table", "array"]))
    indent, comment = draw(GAPS), draw(st.sampled_from(["", " # [x]", ' # "']))
    if kind == "pair":
        return f"{indent}{draw(dotted())}{draw(GAPS)}={draw(GAPS)}{draw(VALUES)}{comment}"
    opened, closed = {"table": ("[", "]"), "array": ("[[", "]]")}[kind]
    return f"{indent}{opened}{draw(GAPS)}{draw(dotted())}{draw(GAPS)}{closed}{comment}"


def is_toml(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Lines, of which one that the document could not hold is left out."""
    text = ""
    for line in draw(st.lists(lines(), max_size=8)):
        longer = f"{text}{line}\n{draw(LINES)}"
        text = longer if is_toml(longer) else text
    return text


def walk(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    if path:
        yield path, value
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        yield from walk(inner, (*path, step))


@given(documents())
def test_every_path_of_a_document_has_its_place_where_its_key_and_value_can_be_read(text: str) -> None:
    read, spots = dict(walk(tomllib.loads(text))), locate(text)
    assert set(spots) == set(read)
    for path, value in read.items():
        require_true_places(text, spots, path, value)


def require_true_places(text: str, spots: Positions, path: KeyPath, value: object) -> None:
    spot = spots[path]
    assert 0 <= spot.value.start < spot.value.end <= len(text)
    assert text[spot.value.end - 1] not in " \t\n"
    if spot.key is not None:
        assert list(tomllib.loads(f"{text[spot.key.start : spot.key.end]} = 0")) == [path[-1]]
    if not isinstance(value, dict | list):
        alone = tomllib.loads(f"x = {text[spot.value.start : spot.value.end]}")["x"]
        assert repr(alone) == repr(value)


DOCUMENT = """\
# a comment
a.b = 1
"c d" = { e = [ 10, { f = "x" } ] } # another
[[g.h]]
i = 1
[g.h.j]
k = 2
[[g.h]]
i = 3
"""


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [
        (("a",), "a", "1"),
        (("a", "b"), "b", "1"),
        (("c d",), '"c d"', '{ e = [ 10, { f = "x" } ] }'),
        (("c d", "e"), "e", '[ 10, { f = "x" } ]'),
        (("c d", "e", 0), None, "10"),
        (("c d", "e", 1), None, '{ f = "x" }'),
        (("c d", "e", 1, "f"), "f", '"x"'),
        (("g",), "g", "[[g.h]]"),
        (("g", "h"), "h", "[[g.h]]"),
        (("g", "h", 0, "j", "k"), "k", "2"),
        (("g", "h", 1, "i"), "i", "3"),
    ],
)
def test_a_key_and_its_value_are_where_they_are_written(path: KeyPath, key: str | None, value: str) -> None:
    spot = locate(DOCUMENT)[path]
    assert (None if spot.key is None else DOCUMENT[spot.key.start : spot.key.end]) == key
    assert DOCUMENT[spot.value.start : spot.value.end] == value


def test_an_absent_key_is_placed_at_its_table() -> None:
    positions = locate("[a]\n[a.b]\nc = 1\n")
    assert place_of(positions, ("a", "b", "x", 0)) == Span(7, 8)
    assert place_of(positions, ("z",)) is None
