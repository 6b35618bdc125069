"""Whatever stands in a file, it is read or refused: with places, and nothing else happens."""

from __future__ import annotations

import copy
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.config.load import load
from bridge.config.text.masking import leaves
from bridge.config.text.positions import KeyPath
from bridge.config.toml_text import shown_values, toml_value
from bridge.errors import ConfigError
from bridge.text.diagnostics import Diagnostic
from tests.config.test_load import ENVIRONMENT, FILE

DATA = tomllib.loads(FILE)
PATHS = sorted({path[:length] for path in leaves(DATA) for length in range(1, len(path) + 1)}, key=str)

WORDS = st.sampled_from(
    [
        "",
        " ",
        "a",
        "*",
        "x/y",
        "github",
        "team",
        "memory:",
        "default",
        "~nobody/x",
        "\0",
        "\n",
        "{key}",
        "${A}",
        "ä",
    ]
)
SCALARS = st.one_of(
    st.booleans(), st.integers(-2, 70_000), st.sampled_from([0.5, -1.5]), WORDS, st.text(max_size=3)
)
KEYS = st.one_of(
    WORDS, st.sampled_from(["env", "file", "bearer", "api_key", "header", "value", "command", "url", "from"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(KEYS, inner, max_size=2)),
    max_leaves=4,
)


def replaced(path: KeyPath, value: Any) -> dict[str, Any]:
    data = copy.deepcopy(DATA)
    holder: Any = data
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    return data


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("any")
    for name in ("work", "hosts"):
        (folder / name).mkdir()
    (folder / "secret").write_text("of a file")
    (folder / "mine.toml").write_text('extends = "default"\n')
    (folder / "hosts" / "mcp.json").write_text('{"mcpServers": {"Git Hub": {"command": "uvx"}}}')
    return folder / "bridge.toml"


def require_read_or_refused(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8", newline="")
    diagnostics: tuple[Diagnostic, ...] = ()
    try:
        loaded = load(file, ENVIRONMENT)
    except ConfigError as exc:
        said, diagnostics = str(exc), exc.diagnostics
    else:
        said = repr(loaded) + repr(shown_values(loaded))
    assert all(one.message and one.line for one in diagnostics if one.file == file)
    assert not any(secret in said for secret in ENVIRONMENT.values())


@given(st.sampled_from(PATHS), VALUES)
def test_any_value_at_any_place_is_read_or_refused_with_its_place(
    file: Path, path: KeyPath, value: Any
) -> None:
    lines = [f"{toml_value(key)} = {toml_value(inner)}" for key, inner in replaced(path, value).items()]
    require_read_or_refused(file, "\n".join(lines))


@given(st.integers(0, len(FILE)), st.integers(0, 12), st.text("[]{}=\"'.,#\n aA1*", max_size=4))
def test_any_edit_of_the_text_is_read_or_refused_with_its_place(
    file: Path, at: int, cut: int, put: str
) -> None:
    require_read_or_refused(file, FILE[:at] + put + FILE[at + cut :])
