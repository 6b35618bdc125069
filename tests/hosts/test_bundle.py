"""MCP bundles: what their manifests ask for, and how the server in them starts.

`python -m tests.release` also has npm's own judge look at a bundle, and starts it with uv.
"""

from __future__ import annotations

import io
import json
import re
import tomllib
import zipfile
from typing import Any

import pytest

from bridge.cli.install import bundle_start
from bridge.hosts import bundle

URL = "https://agent.example.com"
OF_AGENT = bundle.of_agent("research", "1.2.3", ("--granularity", "agent"), URL)
OF_FILE = bundle.of_file("team", "1.2.3", "desk", ("DESK_TOKEN", "OTHER"))


def manifest_in(archive: bytes) -> dict[str, Any]:
    """The manifest of an archive."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        made: dict[str, Any] = json.loads(opened.read(bundle.MANIFEST))
    return made


@pytest.mark.parametrize("made", [OF_AGENT, OF_FILE], ids=["agent", "file"])
def test_each_answer_that_the_server_gets_is_asked_for_in_the_form(made: bundle.Bundle) -> None:
    manifest = manifest_in(bundle.archive_of(made, {}))
    used = set(re.findall(r"\$\{user_config\.(\w+)\}", json.dumps(manifest["server"])))
    assert used == manifest["user_config"].keys()


@pytest.mark.parametrize("made", [OF_AGENT, OF_FILE], ids=["agent", "file"])
def test_a_secret_is_sensitive_and_reaches_the_server_in_a_variable_only(made: bundle.Bundle) -> None:
    manifest = manifest_in(bundle.archive_of(made, {}))
    secret = {key for key, field in manifest["user_config"].items() if field.get("sensitive")}
    config = manifest["server"]["mcp_config"]
    assert {*config["env"].values()} == {bundle.answer(key) for key in secret}
    assert not any(bundle.answer(key) in word for key in secret for word in config["args"])
    assert not any("default" in manifest["user_config"][key] for key in secret)


def test_the_form_of_an_agent_begins_with_its_address() -> None:
    manifest = manifest_in(bundle.archive_of(OF_AGENT, {}))
    assert manifest["user_config"]["url"]["default"] == URL
    assert [key for key, field in manifest["user_config"].items() if field["required"]] == ["url"]
    assert manifest["server"]["mcp_config"]["args"] == [
        *("run", "--directory", "${__dirname}", "server/main.py"),
        *("expose", "--granularity", "agent", "${user_config.url}"),
    ]


def test_the_same_contents_make_the_same_archive() -> None:
    files = {"server/main.py": b"pass\n", "a": b"1"}
    first = bundle.archive_of(OF_AGENT, files)
    assert first == bundle.archive_of(OF_AGENT, dict(reversed(files.items())))


def test_the_project_of_a_bundle_names_what_uv_installs() -> None:
    needed = ["anyio<5,>=4.12", 'x>=1; sys_platform == "win32"']
    project = tomllib.loads(bundle.project_of("1.2.3", needed))
    assert project["project"]["dependencies"] == needed
    assert project["tool"]["uv"] == {"package": False}


@pytest.mark.parametrize(
    ("token", "added"),
    [
        ("secret", ["--bearer", "env:MCP_A2A_AGENT_TOKEN"]),
        ("", []),
        (None, []),
        ("${user_config.token}", []),
    ],
)
def test_a_secret_that_the_user_left_open_adds_no_option(token: str | None, added: list[str]) -> None:
    environment = {} if token is None else {bundle.TOKEN_VARIABLE: token}
    assert bundle_start.arguments(["expose", URL], environment) == ["expose", *added, URL]
