"""`mcp-a2a card` as a user runs it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bridge.a2a.wire.canonical_card import CardForm
from bridge.translate.extensions.bridge import URI
from tests.cli.call.test_command import Run, child, command
from tests.support.mcp_face import Face
from tests.support.mcp_serving import served
from tests.support.running import Running, config_for, listening, raw_command, running
from tests.support.signed_cards import key, signed

CARD: dict[str, Any] = {
    "name": "Strange \x1b[31m[bold]agent",
    "description": "Says :smile:",
    "version": "7",
    "provider": {"organization": "Strangers", "url": "https://strangers.test"},
    "supportedInterfaces": [{"url": "https://x.test/", "protocolBinding": "GRPC", "protocolVersion": "1.0"}],
    "capabilities": {"pushNotifications": True, "extensions": [{"uri": "urn:x", "required": True}]},
    "securitySchemes": {
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}},
        "token": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
    },
    "securityRequirements": [{"schemes": {"key": {"list": []}, "token": {"list": []}}}],
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["image/png"],
    "skills": [
        {
            "id": "draw",
            "name": "Draw",
            "description": "Draws\nwell",
            "tags": ["art", "fun"],
            "examples": ["draw a [horse]"],
            "outputModes": ["image/svg+xml"],
        }
    ],
    "unknownField": {"kept": [1.0, None]},
}

SHOWN = """\
Strange \\x1b[31m[bold]agent 7
Says :smile:
by Strangers https://strangers.test

Interfaces
  GRPC 1.0  https://x.test/

Capabilities
  streaming: no
  push notifications: yes
  extended card: no

Extensions
  urn:x (required)

Security
  key: API key in header X-Key
  token: HTTP Bearer
  needs key and token

Input
  text/plain

Output
  image/png

Skills
  draw Draw (art, fun)
    Draws
    well
    as the agent -> image/svg+xml
    e.g. draw a [horse]
"""


class Agent:
    """Serves a card, and remembers who asked for it."""

    def __init__(self, card: dict[str, Any] = CARD) -> None:
        self.text = json.dumps(card)
        self.headers: dict[str, str] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.headers = dict(Request(scope, receive).headers)
        await Response(self.text)(scope, receive, send)


@pytest.fixture(scope="module")
async def bridge() -> AsyncIterator[Running]:
    async with running(config_for(raw_command())) as bridge:
        yield bridge


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    return command("card", monkeypatch)


async def test_a_whole_card_is_shown_and_controls_no_terminal(run: Run) -> None:
    async with listening(Agent()) as url:
        done = await run(url)
    assert (done.code, done.out, done.err) == (0, SHOWN, "")


async def test_the_schemes_of_a_merged_card_are_shown_once_and_in_words(run: Run) -> None:
    """Cards of the bridge have the fields of A2A 0.3 and 1.0."""
    http = {"scheme": "Bearer"}
    schemes = {
        "bearer": {"httpAuthSecurityScheme": http, "type": "http", **http},
        "query": {"type": "apiKey", "in": "query", "name": "key"},
        "login": {"oauth2SecurityScheme": {"flows": {}}},
        "odd": {"type": "pigeon"},
    }
    async with listening(Agent({**CARD, "securitySchemes": schemes})) as url:
        done = await run(url)
    lines = done.out.partition("Security\n")[2].splitlines()[:4]
    assert [line.strip() for line in lines] == [
        "bearer: HTTP Bearer",
        "query: API key in query key",
        "login: access token of OAuth 2.0",
        "odd: a scheme that the card does not describe",
    ]


async def test_the_card_of_a_bridge_is_shown_with_its_skills(bridge: Running, tmp_path: Path) -> None:
    done = await child("card", bridge.base_url, state=tmp_path)
    assert done.code == 0
    for line in ("Raw Server 1.2.3", f"  JSONRPC 1.0  {bridge.base_url}", "    e.g. echo text"):
        assert line in done.out.splitlines()


async def test_a_skill_is_shown_with_its_arguments_and_only_what_is_its_own(run: Run) -> None:
    steps = {"type": "integer", "minimum": 1, "maximum": 60, "default": 5, "description": "How many steps"}
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "steps": steps},
        "required": ["name"],
    }
    extension = {"uri": URI, "params": {"tools": {"draw": {"inputSchema": schema}}}}
    skill = {
        **CARD["skills"][0],
        "inputModes": ["text/plain"],
        "outputModes": ["image/png"],
        "examples": ["{}", "draw name=x", "draw name=y"],
    }
    agent = Agent()
    agent.text = json.dumps({**CARD, "capabilities": {"extensions": [extension]}, "skills": [skill]})
    async with listening(agent) as url:
        done = await run(url)
    assert done.out.partition("    well\n")[2].splitlines() == [
        "      name (string, required)",
        "      steps (integer, 1 to 60, default 5): How many steps",
        "    e.g. draw name=x",
    ]


async def test_json_is_the_card_as_it_was_received(run: Run) -> None:
    async with listening(Agent()) as url:
        done = await run("--json", url)
    assert (done.code, done.out) == (0, json.dumps(CARD, indent=2) + "\n")


async def test_headers_and_the_token_go_along_and_come_from_elsewhere(run: Run, tmp_path: Path) -> None:
    agent, token = Agent(), tmp_path / "token"
    token.write_text("s3cret\n")
    async with listening(agent) as url:
        options = ("--bearer", f"file:{token}", "--header", "X-Api-Key=env:KEY", "--header", "X-Plain=yes")
        assert (await run(url, *options, KEY="k")).code == 0
    sent = {name: agent.headers[name] for name in ("authorization", "x-api-key", "x-plain", "a2a-version")}
    assert sent == {
        "authorization": "Bearer s3cret",
        "x-api-key": "k",
        "x-plain": "yes",
        "a2a-version": "1.0",
    }


async def test_a_nonconforming_card_is_shown_and_ends_with_1(run: Run) -> None:
    agent = Agent()
    agent.text = json.dumps({**CARD, "skills": []})
    async with listening(agent) as url:
        done = await run(url)
    assert done.code == 1
    assert done.out == SHOWN.partition("  draw")[0]
    assert done.err.startswith("does not conform to A2A: skills: Tuple should have at least 1 item")


async def test_the_address_of_an_mcp_server_is_recognized(run: Run) -> None:
    async with served(Face()) as url:
        done = await run(url)
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        f"mcp-a2a: {url} answered HTTP 406 Not Acceptable; there is no agent card at {url}/.well-known/agent-card.json"
        f" or {url}/.well-known/agent.json. It is an MCP server: mcp-a2a wrap {url} makes an agent of it, and"
        f" mcp-a2a call {url} calls its tools\n"
    )


@pytest.mark.outside
@pytest.mark.proves("cli-usage")
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (
            ["http://127.0.0.1:1/x"],
            1,
            "http://127.0.0.1:1/x/.well-known/agent-card.json cannot be reached: Connection",
        ),
        (["somewhere"], 2, "an agent is reached by an http(s) URL, not 'somewhere'"),
        (["127.0.0.1:8301"], 2, "did you mean http://127.0.0.1:8301?"),
        (["http://x.test", "--bearer", "s3cret"], 2, "--bearer takes env:NAME or file:PATH"),
        (["http://x.test", "--header", "Authorization=s3cret"], 2, "Authorization is a secret"),
        ([], 2, "Missing argument 'URL'"),
    ],
)
async def test_what_cannot_be_shown_is_one_message(
    arguments: list[str], code: int, words: str, run: Run
) -> None:
    done = await run(*arguments)
    assert (done.code, done.out) == (code, "")
    assert words in done.err
    assert "Traceback" not in done.err
    assert "s3cret" not in done.err


async def test_the_signers_of_a_card_are_shown_with_the_verification(run: Run, tmp_path: Path) -> None:
    agent, keys = Agent(), tmp_path / "keys.json"
    whole = {**CARD, "capabilities": {"streaming": True}}
    kid = key().signing.id

    async def shown(card: Any, *options: str) -> list[str]:
        agent.text = json.dumps(card)
        async with listening(agent) as url:
            done = await run(url, *options)
        assert done.code == 0, done.err
        return [
            line.strip() for line in done.out.partition("Signatures\n")[2].partition("\n\n")[0].splitlines()
        ]

    assert await shown(CARD) == []
    assert await shown(signed(whole, key())) == [
        f'not verified: key "{kid}", ES256',
        f'not verified: key "{kid}", ES256, in the form sdk',
        "--signed-by FILE|URL verifies signatures",
    ]
    keys.write_text(json.dumps({"keys": [dict(key().public)]}))
    assert await shown(signed(whole, key()), "--signed-by", str(keys)) == [
        f"verified: key {kid}",
        "not signed, and not used: unknownField",
    ]
    assert await shown(signed(whole, key(), forms=(CardForm.SDK,)), "--signed-by", str(keys)) == [
        f"verified: key {kid}, in the form of the SDKs",
        "not signed, and not used: unknownField, securityRequirements",
    ]


async def test_a_card_without_the_required_signature_is_not_shown(run: Run, tmp_path: Path) -> None:
    agent, keys = Agent(), tmp_path / "keys.json"
    agent.text = json.dumps({**signed(CARD, key()), "name": "Forged"})
    async with listening(agent) as url:
        no_keys = await run(url, "--signed-by", str(keys))
        assert (no_keys.code, no_keys.out) == (2, "")
        assert "cannot be read" in no_keys.err
        keys.write_text(json.dumps({"keys": [dict(key().public)]}))
        done = await run(url, "--signed-by", str(keys))
    assert (done.code, done.out) == (1, "")
    assert "does not fit the card" in done.err
    refused = await run("https://a.test", "--signed-by", "http://keys.example.com/jwks.json")
    assert (refused.code, "takes an https:// URL" in refused.err) == (2, True)
