"""The links that add a server to Cursor and VS Code."""

from __future__ import annotations

import base64
import json
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from bridge.hosts.links import HOSTS, link_to, links_to_url

NAME = "Ärger & Co?"
ENTRY = {
    "type": "stdio",
    "command": "/opt/a b/mcp-a2a",
    "args": ["expose", "https://agent.example.com/?a=1&b=2"],
}


def test_a_link_to_cursor_has_the_name_and_the_entry_in_base64() -> None:
    parts = urlsplit(link_to("cursor", NAME, ENTRY))
    assert (parts.scheme, parts.netloc, parts.path) == ("cursor", "anysphere.cursor-deeplink", "/mcp/install")
    query = parse_qs(parts.query, strict_parsing=True)
    assert query["name"] == [NAME]
    assert json.loads(base64.b64decode(query["config"][0])) == ENTRY


def test_a_link_to_vs_code_has_one_object_with_the_name_in_it() -> None:
    scheme, _, query = link_to("vscode", NAME, ENTRY).partition("?")
    assert scheme == "vscode:mcp/install"
    assert json.loads(unquote(query)) == {"name": NAME, **ENTRY}


@pytest.mark.parametrize("host", [*HOSTS])
def test_a_link_is_one_word_of_ascii(host: str) -> None:
    link = link_to(host, NAME, ENTRY)
    assert link.isascii()
    assert not {*link} & {*" \"'<>\n"}


def test_a_server_at_a_url_has_a_link_for_each_host() -> None:
    url = "https://bridge.example.com/mcp/desk"
    links = links_to_url("desk", url)
    assert links == {
        "cursor": link_to("cursor", "desk", {"url": url}),
        "vscode": link_to("vscode", "desk", {"type": "http", "url": url}),
    }
