"""Every way to break a file that we know of, and what is said then, to the letter.

Each `broken/NAME.toml` has its `broken/NAME.txt`. No value that is a secret may be in any of them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from pydantic import ValidationError

from bridge.config.load import load
from bridge.config.tables.models import AgentTable
from bridge.errors import ConfigError
from bridge.text.diagnostics import Diagnostic, render

BROKEN = Path(__file__).parent / "broken"
CASES = sorted(path.stem for path in BROKEN.glob("*.toml"))

TOKEN = "T0k3n-of-somebody"
ENVIRONMENT = {
    "TOKEN": TOKEN,
    "SAME_TOKEN": TOKEN,
    "EMPTY": " ",
    "TWO_WORDS": f"{TOKEN} {TOKEN}",
    "TWO_LINES": f"{TOKEN}\n{TOKEN}",
}
LITERAL = "hunter2"
"""What stands in the files where a secret belongs."""


@cache
def refusal_of(name: str) -> ConfigError:
    """What is said of a file, which is read once for all tests."""
    with pytest.raises(ConfigError) as refused:
        load(Path(f"{name}.toml"), ENVIRONMENT)
    return refused.value


@pytest.fixture(autouse=True)
def _in_their_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(BROKEN)


@pytest.mark.proves("config-faults")
@pytest.mark.parametrize("name", CASES)
def test_each_fault_is_reported_with_place_line_and_help(name: str) -> None:
    said = str(refusal_of(name)).replace(str(BROKEN), "FOLDER")
    assert f"{said}\n" == (BROKEN / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.proves("config-secrets")
@pytest.mark.parametrize("name", CASES)
def test_no_message_holds_a_secret(name: str) -> None:
    refusal = refusal_of(name)
    said = f"{refusal} {refusal.diagnostics!r} {refusal.__cause__!r}"
    assert TOKEN not in str(refusal)
    assert LITERAL not in str(refusal)
    assert TOKEN not in said.replace(str(refusal.__cause__), "")


@pytest.mark.parametrize("name", CASES)
def test_every_reported_place_is_in_the_file(name: str) -> None:
    for one in refusal_of(name).diagnostics:
        lines = one.file.read_text(encoding="utf-8").split("\n") if one.file.is_file() else [""]
        if one.line:
            assert len(lines[one.line - 1]) == len(one.source)
            assert 1 <= one.column <= len(one.source) + 1
            assert one.column + one.span <= max(len(one.source), one.column) + 1


def test_faults_are_sorted_by_place_with_the_file_itself_first() -> None:
    found = refusal_of("everything").diagnostics
    own = [one for one in found if one.file == Path("everything.toml")]
    assert list(found[: len(own)]) == own
    assert [(one.line, one.column) for one in own] == sorted((one.line, one.column) for one in own)


def test_a_missing_file_is_one_error_without_a_line() -> None:
    assert str(refusal_of("not-there")) == (
        "error: cannot read the configuration: No such file or directory\n"
        " --> not-there.toml\n\n1 error in not-there.toml"
    )


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="it is not UTF-8"):
        load(tmp_path / "a.toml", {})


def test_a_control_character_of_a_file_does_not_reach_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('[bridge]\nhost = "\x1b[31m"\n')
    with pytest.raises(ConfigError) as refused:
        load(tmp_path / "a.toml", {})
    assert "\x1b" not in str(refused.value)


def test_the_same_fault_is_reported_once() -> None:
    one = Diagnostic(Path("a.toml"), "no")
    assert str(ConfigError([one, one])) == "error: no\n --> a.toml\n\n1 error in a.toml"
    assert render([one]) == str(ConfigError([one]))


def test_no_message_of_pydantic_holds_a_secret() -> None:
    with pytest.raises(ValidationError) as refused:
        AgentTable.model_validate({"card": "https://a.example", "auth": {"bearer": LITERAL}})
    assert LITERAL not in str(refused.value)
