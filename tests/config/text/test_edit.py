"""A table or a token that is added to the text of a file, in which every other character stays as it is."""

from __future__ import annotations

import tomllib

import pytest

from bridge.config.text.edit import with_another, with_table, without_the_first
from bridge.errors import UsageError

ANN = ("principals", "ann")
NEW = '{ sha256 = "new" }'


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", ["", "\n", "\n\n", "  # the end"])
def test_a_table_is_appended_and_the_text_before_it_stays(end: str, last: str) -> None:
    text = f'\ufeff# mine{end}[bridge]   # kept{end}port=8080{end}[principals.bob]{end}bearer = {{ env="B" }}{last}'
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\n", end)
    edited = with_table(text, ANN, ['group = "team"', f"bearer = {NEW}"])
    assert edited.startswith(text)
    assert edited.count("\n") == edited.count(end)
    assert tomllib.loads(edited)["principals"] == {
        "bob": {"bearer": {"env": "B"}},
        "ann": {"group": "team", "bearer": {"sha256": "new"}},
    }


def test_a_table_is_added_to_an_empty_text() -> None:
    assert with_table("", ANN, [f"bearer = {NEW}"]) == f"[principals.ann]\nbearer = {NEW}\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[principals.ann]\n", "there is a table [principals.ann] already"),
        ('principals = { bob = { bearer = { env = "B" } } }\n', "write the section as tables"),
        ('[principals]\nann.bearer = { env = "B" }\n', "there is a table [principals.ann] already"),
    ],
)
def test_a_table_that_cannot_be_added_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        with_table(text, ANN, [f"bearer = {NEW}"])
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            '[principals.ann]\n"bearer"  =  { env = "A" }  # hers\nskills = ["a"]\n',
            '[principals.ann]\ntokens  =  [{ env = "A" }, { sha256 = "new" }]  # hers\nskills = ["a"]\n',
        ),
        (
            '[principals.ann]\r\ntokens = [ # one\r\n  { env = "A" }, # old\r\n]\r\n',
            '[principals.ann]\r\ntokens = [ # one\r\n  { env = "A" }, { sha256 = "new" }, # old\r\n]\r\n',
        ),
        (
            '[principals]\nann.bearer = { env = "A" }\n',
            '[principals]\nann.tokens = [{ env = "A" }, { sha256 = "new" }]\n',
        ),
        (
            '[principals]\nann = { bearer = { file = "a" }, group = "team" } # x\n',
            '[principals]\nann = { tokens = [{ file = "a" }, { sha256 = "new" }], group = "team" } # x\n',
        ),
    ],
)
def test_a_second_token_is_added_and_nothing_else_changes(before: str, after: str) -> None:
    assert with_another(before, ANN, NEW) == after


def test_the_older_of_two_tokens_is_removed_and_nothing_else_changes() -> None:
    text = '[principals.ann] # Ann\ntokens = [\n  { env = "A" }, # old\n  { env = "B" }, # new\n]\n'
    assert without_the_first(text, ANN) == '[principals.ann] # Ann\ntokens = [\n  { env = "B" }, # new\n]\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[principals.ann]\ntokens = [{ env = "A" }, { env = "B" }]\n', "has two tokens already"),
        ('[principals.ann]\napi_key = { env = "A" }\n', "there is no token to rotate"),
        ('[principals.bob]\nbearer = { env = "A" }\n', "there is no table [principals.ann]"),
    ],
)
def test_a_token_that_cannot_be_added_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        with_another(text, ANN, NEW)
    assert words in str(refused.value)


@pytest.mark.parametrize("tokens", ['[{ env = "A" }]', "[]"])
def test_the_last_token_is_not_removed(tokens: str) -> None:
    with pytest.raises(UsageError, match="fewer than two tokens"):
        without_the_first(f"[principals.ann]\ntokens = {tokens}\n", ANN)
