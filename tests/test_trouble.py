"""Each message that docs/trouble.md quotes is a message of the code."""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import Final

import pytest

from tests.run import ROOT

PAGE: Final = (ROOT / "docs" / "trouble.md").read_text(encoding="utf-8")
QUOTED: Final = [
    row[1] or row[2] for row in re.finditer(r"^\| (?:`` (.+?) ``|`([^`]+)`) \| ", PAGE, flags=re.MULTILINE)
]
OPEN: Final = "..."
"""A part that differs from message to message."""


@cache
def messages() -> frozenset[str]:
    """All texts in the code, with `...` for each part that is put in. A `{key}` or `%s` is such a part, too."""
    found = set()
    for path in (ROOT / "bridge").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else OPEN for part in node.values]
                found.add("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(re.sub(r"`?\{\w*\}`?|%[sd]", OPEN, node.value))
    return frozenset(found)


def test_the_page_has_twenty_messages() -> None:
    assert len(QUOTED) == len(set(QUOTED)) == 20


@pytest.mark.parametrize("quoted", QUOTED)
def test_a_quoted_message_is_in_the_code(quoted: str) -> None:
    whole = quoted.replace("`", "")
    assert any(whole.removesuffix(OPEN).rstrip() in text.replace("`", "") for text in messages())


def test_a_message_that_is_not_in_the_code_is_noticed() -> None:
    with pytest.raises(AssertionError):
        test_a_quoted_message_is_in_the_code("the moon is in ... today")
