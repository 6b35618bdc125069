"""The schemas for editors, and the page that is made from the same source."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from bridge.config.check.schema_nodes import node_at
from bridge.config.file_schema import config_schema, file_schema, profile_schema
from bridge.config.load import load
from bridge.config.tables.models import Config, SkillTable, ToolsAsAgentTable, ToolServerTable, ToolTable
from bridge.config.tables.profile import Profile, mappings_folder

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "configuration.md"
BROKEN = Path(__file__).parent / "broken"

_file_schema, _profile_schema = cache(file_schema), cache(profile_schema)


BOTH = {"BOB_TOKEN": "e", "BOB_NEXT_TOKEN": "f"}


def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def examples() -> tuple[str, str]:
    """The file that the page's examples are together, and the profile behind them."""
    *tables, profile = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return "\n".join(tables), profile


def faults(schema: Any, text: str) -> list[str]:
    return [error.message for error in Draft202012Validator(schema).iter_errors(tomllib.loads(text))]


def test_the_generated_pages_are_up_to_date() -> None:
    for name, page in generate().PAGES.items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == page(), "run: python docs/generate.py"


@pytest.mark.parametrize("schema", [_file_schema, _profile_schema], ids=["file", "profile"])
def test_the_schemas_are_schemas(schema: Callable[[], Any]) -> None:
    Draft202012Validator.check_schema(schema())


def test_the_examples_of_the_page_are_one_valid_file(tmp_path: Path) -> None:
    text, profile = examples()
    assert faults(_file_schema(), text) == []
    assert faults(_profile_schema(), profile) == []
    (tmp_path / "research.token").write_text("x")
    (tmp_path / "mcp.json").write_text('{"mcpServers": {}}')
    (tmp_path / "hermes_config.yaml").write_text("a2a: { client: { known_agents: [] } }")
    (tmp_path / "mine.toml").write_text(profile)
    file = tmp_path / "bridge.toml"
    file.write_text(
        f'#:schema ./mcp-a2a.schema.json\n{text}\n[tools_as_agent.b]\nfrom = ["github"]\nmapping = "mine.toml"\n'
    )
    loaded = load(
        file,
        {
            "GITHUB_TOKEN": "a",
            "WEATHER_TOKEN": "b",
            "ALICE_TOKEN": "c",
            "RECEIVER_SECRET": "d",
            "OPENAI_API_KEY": "e",
            **BOTH,
        },
    )
    assert set(type(loaded.config).model_fields) == loaded.config.model_fields_set | {"imports"}


@pytest.mark.parametrize("name", ["default", "strict", "long-running", "compact"])
def test_the_profiles_fit_their_schema(name: str) -> None:
    assert faults(_profile_schema(), (mappings_folder() / f"{name}.toml").read_text(encoding="utf-8")) == []


STRUCTURAL = (
    "unknown_key",
    "unknown_table",
    "missing_key",
    "wrong_type",
    "out_of_range",
    "not_among_the_accepted",
    "empty",
    "table_name",
    "command_as_one_text",
    "neither_command_nor_url",
    "command_and_url",
    "oauth2",
    "auth_without_any",
    "secret_from_two_places",
    "key_of_handles",
)
"""Of the broken files, those that are so without looking elsewhere."""


@pytest.mark.parametrize("name", STRUCTURAL)
def test_what_can_be_seen_without_looking_elsewhere_is_refused_by_the_schema_too(name: str) -> None:
    assert faults(_file_schema(), (BROKEN / f"{name}.toml").read_text(encoding="utf-8")) != []


@pytest.mark.parametrize(
    "place",
    [
        "[bridge]\nstore = 'a'",
        "[import]\nmcp_json = 'a'",
        "[import]\nmcp_json = ['a']",
        "[import]\nknown_agents = ['a']",
    ],
)
def test_the_schema_accepts_every_accepted_file(place: str) -> None:
    assert faults(_file_schema(), place) == []


@pytest.mark.parametrize("schema", [_file_schema, _profile_schema], ids=["file", "profile"])
def test_every_key_of_a_schema_says_what_it_means(schema: Callable[[], Any]) -> None:
    for table in (schema(), *schema()["$defs"].values()):
        for key, node in table.get("properties", {}).items():
            assert node.get("description") or "$ref" in node, key


OVERRIDES = [
    (table, key, model, path)
    for model, path, tables in (
        (ToolServerTable, ("tool_servers", "a"), ("server", "run")),
        (ToolsAsAgentTable, ("tools_as_agent", "a"), ("server",)),
        (SkillTable, ("tools_as_agent", "a", "skills", "b"), ("run",)),
        (ToolTable, ("agents_as_tools", "a", "tools", "b"), ("agents",)),
    )
    for table in tables
    for key in Profile.model_fields[table].annotation.model_fields  # type: ignore[union-attr]
    if key in model.model_fields and key != "confirm"
]
"""`confirm` is yes or no for one skill, and for which ones in a profile."""


@pytest.mark.parametrize(
    ("table", "key", "model", "path"), OVERRIDES, ids=[f"{o[2].__name__}.{o[1]}" for o in OVERRIDES]
)
def test_an_override_takes_what_the_profile_takes(
    table: str, key: str, model: type[BaseModel], path: tuple[str, ...]
) -> None:
    profile = {**node_at(_profile_schema(), (table, key))}
    override = {**node_at(config_schema(), (*path, key))}
    for node in (profile, override):
        node.pop("description", None)
        node.pop("default", None)
    assert override == profile


def test_the_tables_of_the_page_are_those_of_the_file() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name, field in Config.model_fields.items():
        assert re.search(rf"^## `\[{field.alias or name}(\.NAME)?\]`$", page, re.MULTILINE)
