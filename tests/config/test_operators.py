"""Who is an operator of the bridge, as the file says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.assembly.plan_from_file import plan_from_file
from bridge.config.load import load
from bridge.errors import UsageError
from bridge.identity.callers.principals import OperatorRole, Principal

FILE = """
[bridge]
public_url = "https://bridge.example.com"
operators_see_contents = true

[tool_servers.a]
command = ["a"]

[tools_as_agent.desk]
from = ["a"]

[principals]
ada = { bearer = { env = "ADA" } }
eyes = { bearer = { env = "EYES" }, operator = "read" }
hands = { api_key = { env = "HANDS" }, skills = ["desk/*"], operator = "answer" }

[issuers.corp]
issuer = "https://login.example.com"
operator.read = ["bridge:see", "bridge:audit"]
operator.answer = ["bridge:answer"]
"""
GIVEN = {"ADA": "ada-token", "EYES": "eyes-token", "HANDS": "hands-key"}


def test_the_file_says_which_principals_and_which_scopes_of_an_issuer_are_operators(tmp_path: Path) -> None:
    file = tmp_path / "bridge.toml"
    file.write_text(FILE, encoding="utf-8")
    plan = plan_from_file(load(file, GIVEN))
    assert [one.principal for one in plan.credentials] == [
        Principal("ada"),
        Principal("eyes", operator=OperatorRole.READ),
        Principal("hands", skills=("desk/*",), operator=OperatorRole.ANSWER),
    ]
    assert plan.issuers["corp"].operators == {
        OperatorRole.READ: {"bridge:see", "bridge:audit"},
        OperatorRole.ANSWER: {"bridge:answer"},
    }
    assert plan.place.operators_see_contents


def test_the_old_key_for_contents_is_refused_and_the_new_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "bridge.toml"
    file.write_text(FILE.replace("operators_see_contents", "console_content"), encoding="utf-8")
    with pytest.raises(UsageError, match="the key is `operators_see_contents` now"):
        load(file, GIVEN)
