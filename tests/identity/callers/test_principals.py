"""What a principal may use."""

from __future__ import annotations

import pytest

from bridge.identity.callers.principals import Principal, may_use

USES: list[tuple[tuple[str, ...], str, str, bool]] = [
    (("*",), "devtools", "anything/at all", True),
    ((), "devtools", "echo", False),
    (("create_*",), "devtools", "create_issue", True),
    (("create_*",), "", "create_issue", True),
    (("create_*",), "devtools", "delete_issue", False),
    (("create_*",), "devtools", "Create_issue", False),
    (("create_*", "echo"), "devtools", "echo", True),
    (("devtools/create_*",), "devtools", "create_issue", True),
    (("devtools/create_*",), "weather", "create_issue", False),
    (("devtools/create_*",), "", "create_issue", False),
    (("devtools/create_*",), "weather", "devtools/create_issue", False),
    (("devtools/*",), "devtools", "create_issue", True),
    (("dev*/echo",), "devtools", "echo", True),
    (("*/issue/create",), "devtools", "issue/create", True),
    (("devtools/issue/create",), "devtools", "issue/create", True),
    (("issue/create",), "devtools", "issue/create", False),
    (("admin*",), "devtools", "admin/reset", True),
    (("[ab]dd",), "devtools", "add", True),
]


@pytest.mark.proves("web-skills")
@pytest.mark.parametrize(("globs", "face", "skill", "may"), USES)
def test_a_principal_may_use_what_a_glob_names_at_that_endpoint(
    globs: tuple[str, ...], face: str, skill: str, may: bool
) -> None:
    assert may_use(Principal("eve", skills=globs), face, skill) is may
