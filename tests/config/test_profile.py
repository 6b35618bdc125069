"""Mapping profiles: the default one, and how others are refused."""

from __future__ import annotations

import math
import re
import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel, ValidationError

from bridge.config.profile import Profile, load_profile, mappings_folder
from bridge.errors import UsageError

DEFAULT = mappings_folder() / "default.toml"
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


@pytest.mark.parametrize(("table", "key"), KEYS)
def test_every_key_of_the_default_profile_is_commented(table: str, key: str) -> None:
    lines = TEXT.splitlines()
    (place,) = [
        number for number, line in enumerate(lines) if re.match(rf"({key} =|\[{table}\.{key}\])", line)
    ]
    assert "# " in lines[place] or lines[place - 1].startswith("# ")


@pytest.mark.parametrize(("table", "key"), KEYS)
def test_every_unit_is_in_the_name_of_its_key(table: str, key: str) -> None:
    annotation = TABLES[table].model_fields[key].annotation
    if annotation is float or float in get_args(annotation):
        assert key.endswith(("_seconds", "_per_second"))


@pytest.mark.proves("profile")
@pytest.mark.parametrize(("table", "key"), KEYS)
def test_a_profile_without_one_of_the_keys_is_refused(table: str, key: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(re.sub(rf"(?m)^({key} = |\[{table}\.{key}\]).*$", "", TEXT, count=1))
    with pytest.raises(UsageError, match=rf"{table}\.{key} is missing") as refused:
        load_profile(str(path))
    assert str(refused.value).count("\n") == 1


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
    with pytest.raises(UsageError) as refused:
        load_profile(str(path))
    first, *faults = str(refused.value).splitlines()
    assert first == f"the mapping profile {path} is not as it should be:"
    assert [fault.split()[0] for fault in faults] == [
        "card.max_age_seconds",
        "arguments.incomplete",
        "run.queue",
        "server.connect_seconds",
        "server.conect_seconds",
        "extra",
    ]
    assert "run.queue = 'many': Input should be a valid integer" in str(refused.value)
    assert "  server.conect_seconds is not a key of a profile" in faults
    assert "  extra is not a key of a profile" in faults


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
    ("requests", "json_depth", 7),
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
        (b"[card", "is no TOML"),
        (b"a = 1\na = 2\n", "is no TOML"),
        (b"\xff\xfe", "it is not UTF-8"),
        (None, "No such file"),
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
def test_a_name_that_is_none_is_answered_with_those_there_are(name: str) -> None:
    with pytest.raises(UsageError, match=r"there is default, or give the path of a \.toml file"):
        load_profile(name)


def test_a_profile_by_path_is_the_profile(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(TEXT)
    assert load_profile(str(path)) == load_profile()
