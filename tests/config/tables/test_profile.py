"""Mapping profiles: the default one, and how others are refused."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel, ValidationError

from bridge.config.check.schema_nodes import node_at
from bridge.config.file_schema import meanings_in, profile_schema
from bridge.config.tables.profile import TABLES_OF, Profile, load_profile, mappings_folder, resolve_profile
from bridge.config.text.document import ValueSource, read_toml
from bridge.config.text.wording import listed
from bridge.errors import ConfigError, UsageError

DEFAULT = mappings_folder() / "default.toml"
ROOT = Path(__file__).parents[3]
TEXT = DEFAULT.read_text(encoding="utf-8")
TABLES: dict[str, type[BaseModel]] = {
    name: field.annotation for name, field in Profile.model_fields.items() if field.annotation is not None
}
KEYS = [(table, key) for table, model in TABLES.items() for key in model.model_fields]


def changed(**tables: dict[str, Any]) -> dict[str, Any]:
    values = load_profile().model_dump()
    return {name: {**keys, **tables.get(name, {})} for name, keys in values.items()}


@pytest.mark.proves("profile")
def test_the_default_profile_and_the_model_have_the_same_keys_and_no_second_default() -> None:
    written = tomllib.loads(TEXT)
    assert {name: set(keys) for name, keys in written.items()} == {
        name: set(model.model_fields) for name, model in TABLES.items()
    }
    assert [key for table, key in KEYS if not TABLES[table].model_fields[key].is_required()] == []
    assert load_profile().model_dump() == written


def test_every_key_of_the_default_profile_is_commented() -> None:
    lines = TEXT.splitlines()
    for table, key in KEYS:
        pattern = rf"({key} =|\[{table}\.{key}\])"
        (place,) = [number for number, line in enumerate(lines) if re.match(pattern, line)]
        assert "# " in lines[place] or lines[place - 1].startswith("# "), (table, key)


def test_every_unit_is_in_the_name_of_its_key() -> None:
    kinds = [(key, TABLES[table].model_fields[key].annotation) for table, key in KEYS]
    numbers = [key for key, kind in kinds if kind is float or float in get_args(kind)]
    assert [key for key in numbers if not key.endswith(("_seconds", "_per_second"))] == []


@pytest.mark.proves("profile")
@pytest.mark.parametrize(("table", "key"), KEYS)
@pytest.mark.smoke("card-*", "run-*")
def test_a_profile_without_one_of_the_keys_is_refused(table: str, key: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(re.sub(rf"(?m)^({key} = |\[{table}\.{key}\]).*$", "", TEXT, count=1))
    with pytest.raises(ConfigError, match=rf"this one lacks `{table}\.{key}`\n") as refused:
        load_profile(str(path))
    (only,) = refused.value.diagnostics
    assert only.hint == 'write extends = "default" as its first line, and only what differs'


@pytest.mark.proves("profile")
def test_every_fault_of_a_profile_is_named_at_once(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    text = TEXT.replace("max_age_seconds = 60 ", "max_age_seconds = -1 ").replace(
        'incomplete = "ask"', "incomplete = 1"
    )
    text = text.replace("queue = 256 ", 'queue = "many" ').replace(
        "connect_seconds = 30 ", "conect_seconds = 30 "
    )
    path.write_text(text + "\n[extra]\na = 1\n")
    with pytest.raises(ConfigError) as refused:
        load_profile(str(path))
    assert [(one.message, one.hint) for one in refused.value.diagnostics] == [
        ("`max_age_seconds` takes 0 or more, not -1", ""),
        ('`incomplete` takes "ask" or "reject", not a whole number', ""),
        ("`queue` takes a whole number, not a text", ""),
        ("unknown key `conect_seconds` in [server]", "did you mean `connect_seconds`?"),
        ("unknown table [extra]", f"there is {listed((f'`{table}`' for table in TABLES), 'and')}"),
    ]


WRONG: list[tuple[str, str, Any]] = [
    ("run", "concurrency", 0),
    ("run", "concurrency", True),
    ("run", "concurrency", 1.0),
    ("run", "concurrency", "16"),
    ("run", "call_timeout_seconds", 0),
    ("run", "call_timeout_seconds", -1),
    *(
        (table, key, value)
        for table, key in (
            ("run", "drain_seconds"),
            ("store", "keep_ended_seconds"),
            ("requests", "repeat_seconds"),
        )
        for value in (math.inf, math.nan, "60", True, None)
    ),
    ("streams", "heartbeat_seconds", 3.1),
    ("issuers", "leeway_seconds", 56),  # with a heartbeat, streams end within 60 s of their token
    ("requests", "json_depth", 7),
    ("requests", "head_limit_bytes", 1023),
    ("requests", "bytes_per_second", -1),
    ("connections", "most", 0),
    ("connections", "proxies", ["10.0.0.0/8", "proxy.example.com"]),
    ("connections", "proxies", "10.0.0.1"),
    ("requests", "json_depth", 101),
    ("server", "fail", "ajar"),
    ("content", "allow_file_links", 1),
    ("route", "metadata_keys", ["a", 1]),
    ("route", "text_into", {"a": 1}),
    ("route", "default_skill", None),
]


@pytest.mark.proves("profile")
@pytest.mark.parametrize(("table", "key", "value"), WRONG)
def test_a_value_of_the_wrong_type_or_range_is_refused(table: str, key: str, value: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        Profile.model_validate(changed(**{table: {key: value}}))
    assert {found["loc"][:2] for found in refused.value.errors()} == {(table, key)}


def test_whole_numbers_are_seconds_too() -> None:
    assert Profile.model_validate(changed(run={"drain_seconds": 1})).run.drain_seconds == 1


@pytest.mark.proves("profile")
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[card", "this is not valid TOML: "),
        (b"a = 1\na = 2\n", "this is not valid TOML: a key or table appears twice"),
        (b"\xff\xfe", "it is not UTF-8"),
        (None, "there is no such file"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_clear_message(
    content: bytes | None, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=said) as refused:
        load_profile(str(path))
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("name", ["defualt", "", "..", "Default"])
def test_an_unknown_profile_name_is_answered_with_the_known_names(name: str) -> None:
    with pytest.raises(UsageError, match=r"`default`.* \(or give the path of a \.toml file\)"):
        load_profile(name)


def test_a_profile_by_path_is_the_profile(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(TEXT)
    assert load_profile(str(path)) == load_profile()


NAMES = sorted(path.stem for path in mappings_folder().glob("*.toml"))


def test_the_profiles_that_come_with_the_bridge_are_those_of_the_readme() -> None:
    text = (mappings_folder() / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"\]\(([a-z-]+)\.toml\)", text)) == NAMES


@pytest.mark.parametrize("name", [name for name in NAMES if name != "default"])
def test_a_profile_that_comes_with_the_bridge_says_why_it_differs_and_only_where_it_does(name: str) -> None:
    path = mappings_folder() / f"{name}.toml"
    lines, default = path.read_text(encoding="utf-8").splitlines(), load_profile().model_dump()
    assert lines[1] == 'extends = "default"'
    for line in lines[2:]:
        assert re.fullmatch(r"|\[[a-z]+\]|[a-z_]+ = \S+ +# \S.*", line)
    for table, keys in tomllib.loads(path.read_text(encoding="utf-8")).items():
        for key, value in keys.items() if table != "extends" else ():
            assert default[table][key] != value


def test_every_number_of_the_default_profile_has_its_range_beside_it() -> None:
    for table, key in KEYS:
        (line,) = re.findall(rf"(?ms)^\[{table}\]$.*?^({key} = [^\n]*)$", TEXT) or [""]
        if re.match(r"\w+ = [\d.]+ ", line):
            assert re.search(r"; (over 0|\d+ (or more|to \d+))", line), (table, key)


def test_every_table_is_read_from_somebodys_profile() -> None:
    assert {table for tables in TABLES_OF.values() for table in tables} == set(TABLES)


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_profile_that_extends_another_holds_only_what_differs(tmp_path: Path) -> None:
    write(tmp_path / "base.toml", 'extends = "long-running"\n[run]\nqueue = 7\nconcurrency = 3\n')
    mine = write(tmp_path / "mine.toml", 'extends = "./base.toml"\n\n[run]\nqueue = 8\n')
    resolved = resolve_profile(mine)
    own = {"queue": 8, "concurrency": 3}
    expected = load_profile("long-running").run.model_copy(update=own)
    assert resolved.profile == load_profile("long-running").having(run=expected)
    assert resolved.origins["run", "queue"] == ValueSource("profile", f"{mine}:4")
    assert resolved.origins["run", "concurrency"] == ValueSource("profile", f"{tmp_path / 'base.toml'}:4")
    assert resolved.origins["run", "drain_seconds"].place.endswith("long-running.toml:10")
    assert resolved.origins["card", "max_age_seconds"] == ValueSource("default")
    assert {path.name for path in resolved.files} == {
        "mine.toml",
        "base.toml",
        "long-running.toml",
        "default.toml",
    }


def test_a_table_in_a_profile_replaces_the_extended_one_whole(tmp_path: Path) -> None:
    write(tmp_path / "base.toml", 'extends = "default"\n[route.text_into]\na = "b"\nc = "d"\n')
    mine = write(tmp_path / "mine.toml", 'extends = "./base.toml"\n[route.text_into]\ne = "f"\n')
    assert load_profile(mine).route.text_into == {"e": "f"}


@pytest.mark.parametrize("extended", ["./mine.toml", "mine.toml", "../{folder}/mine.toml"])
def test_a_profile_that_extends_itself_is_refused(extended: str, tmp_path: Path) -> None:
    mine = write(tmp_path / "mine.toml", f'extends = "{extended.format(folder=tmp_path.name)}"\n')
    with pytest.raises(ConfigError, match="the profile extends itself"):
        load_profile(mine)


def test_what_a_profile_extends_is_named_by_a_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`extends` takes the name or path of a profile"):
        load_profile(write(tmp_path / "mine.toml", "extends = 1\n"))


def test_a_fault_names_the_file_that_has_it(tmp_path: Path) -> None:
    write(tmp_path / "base.toml", 'extends = "default"\n[run]\nqueue = "x"\n')
    mine = write(tmp_path / "mine.toml", 'extends = "./base.toml"\n[run]\nqueue = 8\n')
    with pytest.raises(ConfigError) as refused:
        load_profile(mine)
    assert [(one.file.name, one.line) for one in refused.value.diagnostics] == [("base.toml", 3)]


def test_the_range_that_a_meaning_says_is_the_bound_of_the_type() -> None:
    schema, meanings = profile_schema(), meanings_in(read_toml(DEFAULT, "the mapping profile"))
    for place, meaning in meanings.items():
        node = node_at(schema, place)
        node = node.get("items", node)
        above, least, most = (node.get(key) for key in ("exclusiveMinimum", "minimum", "maximum"))
        said = [f"over {above}" + (f", at most {most}" if most else "")] if above is not None else []
        if above is not None and node["type"] == "integer":
            said.append(f"{above + 1} or more")
        elif least is not None:
            said.append(f"{least} or more" if most is None else f"{least} to {most}")
        assert not said or any(words in meaning for words in said), place


@pytest.mark.long
def test_a_key_is_added_in_two_files(tmp_path: Path) -> None:
    """Its value, meaning and range in the default profile, its type and bound in the settings: the rest follows."""
    for folder in ("bridge", "mappings"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    profile, settings = tmp_path / "mappings" / "default.toml", tmp_path / "bridge" / "settings.py"
    added = "[run]\nnap_seconds = 7               # how long a call rests; over 0\n"
    profile.write_text(profile.read_text("utf-8").replace("[run]\n", added), "utf-8")
    head = "    call_timeout_seconds: PositiveFloat\n"
    settings.write_text(
        settings.read_text("utf-8").replace(head, f"    nap_seconds: PositiveFloat\n{head}"), "utf-8"
    )
    (tmp_path / "mine.toml").write_text('extends = "default"\n[run]\nnap_seconds = 0\n', "utf-8")
    program = """
from bridge.assembly.plan import PublishedPlan
from bridge.assembly.published_agent import agent_options_of
from bridge.config.file_schema import profile_schema
from bridge.config.tables.profile import load_profile
from bridge.errors import ConfigError

options = agent_options_of("desk", PublishedPlan((), load_profile()), push=False)
print(options.run.nap_seconds, profile_schema()["$defs"]["RunSettings"]["properties"]["nap_seconds"])
try:
    load_profile("mine.toml")
except ConfigError as exc:
    print(exc)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.stdout.startswith("7"), ran.stderr
    assert "how long a call rests; over 0" in ran.stdout
    assert "`nap_seconds` takes more than 0" in ran.stdout
