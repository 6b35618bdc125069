"""Adding and removing a server in a host's text changes no other character."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.hosts.edit import (
    BrokenFileError,
    ServerPlace,
    server_in,
    with_input,
    with_server,
    without_input,
    without_server,
)
from bridge.text.jsonc import parse_jsonc

ENTRY: dict[str, Any] = {"command": "/bin/mcp-a2a", "args": ["expose", "https://a.example"]}
SLOT = ServerPlace("mcpServers", "ours")
LOOSE = ServerPlace("mcpServers", "ours", comments=True)

WRITTEN = """{
  "mcpServers": {
    "ours": {
      "command": "/bin/mcp-a2a",
      "args": [
        "expose",
        "https://a.example"
      ]
    }
  }
}
"""

THERE_BEFORE = [
    "{}",
    "{}\n",
    "{\n}\n",
    '{"mcpServers": {}}',
    '{"mcpServers": null}',
    '{"mcpServers":{"a":{"command":"x"}}}',
    '{"mcpServers": {"a": {"command": "x"}}, "z": 1}\n',
    '{\n  "z": 1.50,\n  "a": 1e3,\n  "mcpServers": {\n    "b": {"x": 1},\n    "a": {}\n  },\n  "m": [1,2 , 3]\n}\n',
    '{\n\t"mcpServers": {\n\t\t"a": {\n\t\t\t"command": "x"\n\t\t}\n\t}\n}\n',
    '{\r\n    "mcpServers": {\r\n        "a": {}\r\n    }\r\n}\r\n',
    '{\n  "n\\u00e4me \\" }": "https://x // no comment /* */ ,}",\n  "mcpServers": {\n    "a": {"x": "{,}"}\n  }\n}',
    '{"preferences": {"mcpServers": {"deep": 1}}}',
    '  {"a": "\\\\"}  ',
]

WITH_COMMENTS = [
    '// mine\n{\n  // all\n  "mcpServers": {\n    "a": {}, // one\n    /* two, */ "b": {} // last\n  }\n}\n// end\n',
    '{\n  "mcpServers": {\n    "a": {},\n  },\n}\n',
    '{\n  "mcpServers": {\n    "a": {}, // a comma, then words\n  }, /* and, more */\n}\n',
    '{\n  "mcpServers": {\n    // nothing yet, \n  }\n}\n',
    "{\n  // nothing at all\n}\n",
    '{ /* "mcpServers": {}, */ "x": "// no, /* no */" }',
]


@pytest.mark.parametrize("text", ["", "\n", "  \n"])
def test_an_empty_file_gets_the_server_alone(text: str) -> None:
    assert with_server(text, SLOT, ENTRY) == WRITTEN


@pytest.mark.parametrize(
    ("text", "slot"),
    [(text, SLOT) for text in THERE_BEFORE] + [(text, LOOSE) for text in THERE_BEFORE + WITH_COMMENTS],
)
def test_adding_and_removing_a_server_changes_nothing_else(text: str, slot: ServerPlace) -> None:
    added = with_server(text, slot, ENTRY)
    assert server_in(added, slot) == ENTRY
    assert with_server(added, slot, ENTRY) == added
    if slot is SLOT:
        before = json.loads(text)
        after = json.loads(added)
        assert list(after) == list(before) + ([] if "mcpServers" in before else ["mcpServers"])
        assert after.pop("mcpServers") == (before.pop("mcpServers", None) or {}) | {"ours": ENTRY}
        assert after == before
    rest = iter(added)
    assert [
        c for c in text.replace("null", "") if not c.isspace() and c not in rest
    ] == []  # nothing was lost
    removed = without_server(added, slot)
    assert server_in(removed, slot) is None
    assert without_server(removed, slot) == removed
    again = with_server(removed, slot, ENTRY)
    assert without_server(again, slot) == removed


STAYS = [THERE_BEFORE[7], THERE_BEFORE[8], THERE_BEFORE[9], WITH_COMMENTS[1], WITH_COMMENTS[2]]


@pytest.mark.parametrize("text", STAYS)
def test_removing_an_added_server_restores_the_text(text: str) -> None:
    assert without_server(with_server(text, LOOSE, ENTRY), LOOSE) == text


def test_a_server_is_laid_out_as_its_neighbours_are() -> None:
    text = '{\n\t"mcpServers": {\n\t\t"a": {}\n\t},\n\t"z": 1\n}\n'
    assert with_server(text, SLOT, {"command": "x"}) == (
        '{\n\t"mcpServers": {\n\t\t"a": {},\n\t\t"ours": {\n\t\t\t"command": "x"\n\t\t}\n\t},\n\t"z": 1\n}\n'
    )
    windows = with_server(text.replace("\n", "\r\n"), SLOT, ENTRY)
    assert windows.count("\n") == windows.count("\r\n")


def test_a_comment_after_the_last_server_stays_after_it() -> None:
    text = '{\n  "mcpServers": {\n    "a": {} // first\n  }\n}\n'
    assert with_server(text, LOOSE, {"command": "x"}) == (
        '{\n  "mcpServers": {\n    "a": {}, // first\n    "ours": {\n      "command": "x"\n    }\n  }\n}\n'
    )


def test_a_server_that_changes_stays_in_its_place() -> None:
    text = '{\n  "mcpServers": {\n    "ours": {"command": "old"},\n    "b": {} // last\n  }\n}\n'
    assert with_server(text, LOOSE, {"command": "new"}) == text.replace(
        '{"command": "old"}', '{\n      "command": "new"\n    }'
    )


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('{"mcpServers": {"ours": {}, "b": {}}}', '{"mcpServers": {"b": {}}}'),
        ('{"mcpServers": {"a": {}, "ours": {}}}', '{"mcpServers": {"a": {}}}'),
        ('{"mcpServers": {"ours": {}}}', '{"mcpServers": {}}'),
        ('{"mcpServers": {"ours": 1, "b": {}, "ours": 2}}', '{"mcpServers": {"b": {}}}'),
        (
            '{\n  "mcpServers": {\n    "a": {},\n    "ours": {\n    },\n    "b": {}\n  }\n}\n',
            '{\n  "mcpServers": {\n    "a": {},\n    "b": {}\n  }\n}\n',
        ),
    ],
)
def test_a_server_is_removed_at_any_position(text: str, left: str) -> None:
    assert without_server(text, SLOT).replace("{ ", "{") == left


def test_another_key_holds_the_servers_of_another_host() -> None:
    text = with_server('{"inputs": [], "mcpServers": {"a": {}}}', ServerPlace("servers", "ours"), ENTRY)
    assert json.loads(text) == {"inputs": [], "mcpServers": {"a": {}}, "servers": {"ours": ENTRY}}


BROKEN = [
    ('{"mcpServers": {', SLOT, r"line 1, column 17"),
    ('{\n  "a": 1\n  "b": 2\n}', SLOT, r"not valid JSON.*line 3, column 3"),
    ('{\n  "a": 1, // one\n  "b": 2\n}', SLOT, r"has a comment.*line 2, column 11"),
    ('{"mcpServers": {"a": {},}}', SLOT, r"a trailing comma"),
    ('{"a": 1} x', LOOSE, r"unexpected text after its end \(line 1, column 10"),
    ('{"a": /* 1}', LOOSE, r"line 1, column 7"),
    ('{"a": NaN}', SLOT, "NaN is not a number in JSON"),
    ("[]", SLOT, "it is a list, not an object"),
    ('{"mcpServers": []}', SLOT, "its mcpServers is a list, not an object"),
    ('{"mcpServers": "x"}', SLOT, "its mcpServers is a text"),
    ('{"a":' * 100_000, SLOT, "nested too deeply"),
]


@pytest.mark.parametrize(("text", "slot", "words"), BROKEN, ids=[row[2] for row in BROKEN])
def test_what_is_broken_is_refused_with_its_place(text: str, slot: ServerPlace, words: str) -> None:
    for edit in (lambda: with_server(text, slot, ENTRY), lambda: without_server(text, slot)):
        with pytest.raises(BrokenFileError, match=words):
            edit()


ASKED: dict[str, Any] = {"type": "promptString", "id": "a-token", "password": True}
INPUTS = [
    (
        "{}",
        '{\n  "inputs": [\n    {\n      "type": "promptString",\n      "id": "a-token",\n'
        '      "password": true\n    }\n  ]\n}',
    ),
    ('{"inputs": null, "z": 1}', None),
    ('{"inputs": []}', None),
    ('{\n  "inputs": [ // mine\n  ],\n}', None),
    ('{\n  "inputs": [\n    {"id": "x"}, // one\n    {"id": "y"},\n  ],\n}', None),
    ('{"inputs": [{"id": "x"}], "servers": {}}', None),
]


@pytest.mark.parametrize(("text", "edited"), INPUTS)
def test_an_input_is_added_and_removed(text: str, edited: str | None) -> None:
    before = parse_jsonc(text).value
    made = with_input(text, "inputs", ASKED, comments=True)
    assert edited is None or made == edited
    assert isinstance(before, dict)
    there = before.get("inputs") or []
    assert parse_jsonc(made).value == {**before, "inputs": [*there, ASKED]}
    assert all(words in made for words in ("// mine", "// one") if words in text)
    assert with_input(made, "inputs", ASKED, comments=True) == made
    changed = with_input(made, "inputs", {**ASKED, "password": False}, comments=True)
    assert parse_jsonc(changed).value == {**before, "inputs": [*there, {**ASKED, "password": False}]}
    out = without_input(made, "inputs", "a-token", comments=True)
    # A comment beside it may be about it: then it stays.
    assert parse_jsonc(out).value == {**before, "inputs": [*there, ASKED] if "// mine" in text else there}
    assert without_input(text, "inputs", "a-token", comments=True) == text


def test_a_value_that_is_no_list_stays_unchanged() -> None:
    with pytest.raises(BrokenFileError, match="its inputs is an object, not a list"):
        with_input('{"inputs": {}}', "inputs", ASKED, comments=True)
