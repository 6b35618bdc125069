"""Oddly written answers of servers: each is read, or its call fails at once, over all transports alike."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from bridge.errors import PeerError
from bridge.mcp.client.eras import Era
from bridge.mcp.client.faults import ServerLostError, ServerRefusedError
from bridge.mcp.client.session import Session
from tests.support.limits import call_of, command_of, server_settings, url_at
from tests.support.odd_server import FINE, OddApp
from tests.support.running import listening

# What the transports share is behind them: each odd message comes over two of the four.
pytestmark = pytest.mark.smoke("*stdio", "*events")

pytestmark = pytest.mark.proves("mcp-odd")

ODD_SERVER: Final = Path(__file__).parents[2] / "support" / "odd_server.py"
SETTINGS: Final = server_settings(connect_seconds=20, longest_pause_seconds=0.3)
TRANSPORTS: Final = ("stdio", "events", "bodies", "HTTP+SSE")
STREAMS: Final = ("stdio", "events", "HTTP+SSE")
PLAIN: Final = f'{{"jsonrpc":"2.0","id":ID,"result":{FINE}}}'


@asynccontextmanager
async def speaking(transport: str, texts: Sequence[str], **options: Any) -> AsyncIterator[Session]:
    """A session with a server that answers its tool `odd` with these texts."""
    app = OddApp(texts, in_events=transport == "events", **options)
    async with listening(app) as root_url:
        target = {
            "stdio": command_of((sys.executable, "-S", "-E", str(ODD_SERVER), *texts)),
            "HTTP+SSE": url_at(f"{root_url}/sse"),
        }.get(transport) or url_at(f"{root_url}/mcp")
        session = Session("tools", target, era=Era.LEGACY, settings=SETTINGS)
        with anyio.fail_after(30):
            async with session.run():
                await session.ready()
                yield session


async def said(session: Session, tool: str = "odd") -> Any:
    """The text that a tool gives."""
    result: Any = await session.call(call_of(tool, {}))
    return result["content"][0]["text"]


def worded(text: str) -> str:
    return PLAIN.replace("fine", text)


READ: Final = {
    "without jsonrpc": (f'{{"id":ID,"result":{FINE}}}', "fine"),
    "with a jsonrpc that is a number": (f'{{"jsonrpc":2.0,"id":ID,"result":{FINE}}}', "fine"),
    "with an id such as 7.0": (f'{{"jsonrpc":"2.0","id":ID.0,"result":{FINE}}}', "fine"),
    "with an id that is a text": (f'{{"jsonrpc":"2.0","id":"ID","result":{FINE}}}', "fine"),
    "in a batch of one": (f"[{PLAIN}]", "fine"),
    "in a batch with news": (f'[{{"jsonrpc":"2.0","method":"notifications/x"}},{PLAIN}]', "fine"),
    "with a raw tab": (worded("a\tb"), "a\tb"),
    "after a byte order mark": ("\xef\xbb\xbf" + PLAIN, "fine"),
    "with a byte of latin-1": (worded("caf\xe9"), "caf\ufffd"),
    "with half a surrogate pair": (worded("half \\ud83d"), "half \ufffd"),
    "with the method repeated": (
        f'{{"jsonrpc":"2.0","id":ID,"method":"tools/call","result":{FINE}}}',
        "fine",
    ),
    "with an error that is null": (f'{{"jsonrpc":"2.0","id":ID,"error":null,"result":{FINE}}}', "fine"),
    "with more after it": (f"{PLAIN} done", "fine"),
}


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("kind", READ)
async def test_an_oddly_written_answer_is_read(transport: str, kind: str) -> None:
    text, read = READ[kind]
    async with speaking(transport, [text]) as session:
        assert await said(session) == read
        assert await said(session, "plain") == "plain"


REFUSED: Final = {
    "a text": ('"disk full"', -32603, "disk full"),
    "a text beside a result": (f'"disk full","result":{FINE}', -32603, "disk full"),
    "without a code": ('{"message":"disk full"}', -32603, "disk full"),
    "with a code that is a text": ('{"code":"E_DISK","message":"disk full"}', -32603, "disk full"),
    "with a code that is digits": ('{"code":"-32001","message":"disk full"}', -32001, "disk full"),
    "without a message": ('{"code":-32001,"reason":"disk"}', -32001, '{"code": -32001, "reason": "disk"}'),
    "with a message that is no text": ('{"code":1,"message":["disk"]}', 1, '["disk"]'),
    "true": ("true", -32603, "true"),
}


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("kind", REFUSED)
async def test_an_oddly_written_error_is_read(transport: str, kind: str) -> None:
    error, code, words = REFUSED[kind]
    async with speaking(transport, [f'{{"jsonrpc":"2.0","id":ID,"error":{error}}}']) as session:
        with pytest.raises(ServerRefusedError) as refused:
            await said(session)
        assert (refused.value.code, str(refused.value)) == (code, words)
        assert await said(session, "plain") == "plain"


UNREADABLE: Final = {
    "a result that is a text": ('{"jsonrpc":"2.0","id":ID,"result":"x"}', 'its result is no object: "x"'),
    "a result that is null": ('{"jsonrpc":"2.0","id":ID,"result":null}', "its result is no object: null"),
    "a result that is a list": ('{"jsonrpc":"2.0","id":ID,"result":[]}', "its result is no object: []"),
    "neither result nor error": ('{"jsonrpc":"2.0","id":ID}', "it is neither a request nor an answer"),
    "a broken line": ('{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"te', "it is not JSON"),
}


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("kind", UNREADABLE)
async def test_a_call_whose_answer_cannot_be_read_fails_at_once(transport: str, kind: str) -> None:
    text, words = UNREADABLE[kind]
    async with speaking(transport, [text]) as session:
        with pytest.raises(ServerLostError) as failed:
            await said(session)
        assert str(failed.value) == f"tools: its answer cannot be read: {words}"
        assert await said(session, "plain") == "plain"


BESIDE: Final = {
    "a heartbeat": '{"type":"heartbeat"}',
    "a heartbeat with a number": '{"type":"heartbeat","id":ID}',
    "a line of a log with a number": '{"level":"error","id":ID,"error":"timeout"}',
    "the end of a stream of OpenAI": "[DONE]",
    "a word": "ping",
    "a number": "7",
    "null": "null",
    "an empty batch": "[]",
}
NAMES_NONE: Final = '{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"what?"}}'


@pytest.mark.parametrize("transport", STREAMS)
@pytest.mark.parametrize("kind", BESIDE)
async def test_an_invalid_message_is_ignored(
    transport: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with speaking(transport, [BESIDE[kind], PLAIN]) as session:
        assert await said(session) == "fine"
    assert "sends a line that is not an MCP message. It is ignored: " in caplog.text


LOGGED: Final = '{"level":"info","msg":"started on port 7"}'
HALF: Final = '{"jsonrpc":"2.0","result":{"content":[{"type":"text","text":"a secret"}]}}'


@pytest.mark.parametrize(
    ("line", "shown"), [(LOGGED, repr(LOGGED)), (HALF, "74 characters of JSON")], ids=["log", "result"]
)
async def test_a_log_line_of_a_server_is_shown_and_a_possible_result_is_not(
    line: str, shown: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with speaking("stdio", [line, PLAIN]) as session:
        assert await said(session) == "fine"
    assert f"sends a line that is not an MCP message. It is ignored: {shown}" in caplog.text
    assert "a secret" not in caplog.text
    assert "validation error" not in caplog.text


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_text_after_a_message_is_ignored_with_a_warning(
    transport: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with speaking(transport, [f"{PLAIN} done"]) as session:
        assert await said(session) == "fine"
        assert await said(session, "plain") == "plain"
    assert "sends a line that is not an MCP message. It is ignored: 'done'" in caplog.text


@pytest.mark.parametrize("transport", ["stdio", "HTTP+SSE"])
async def test_an_error_without_a_request_id_fails_no_waiting_request(
    transport: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be about a notification, which some servers answer so."""
    async with speaking(transport, [NAMES_NONE, PLAIN]) as session:
        assert await said(session) == "fine"
    assert "sends an error without the id of a request. It is ignored: 'what?'" in caplog.text


@pytest.mark.parametrize("transport", ["events", "bodies"])
@pytest.mark.parametrize("said_id", ["null", "12345", '"other"', "true"])
async def test_the_response_to_a_post_answers_its_request(transport: str, said_id: str) -> None:
    error = f'{{"jsonrpc":"2.0","id":{said_id},"error":{{"code":-32001,"message":"no"}}}}'
    async with speaking(transport, [error]) as session:
        with pytest.raises(ServerRefusedError, match="no"):
            await said(session)
        assert await said(session, "plain") == "plain"


async def test_a_body_without_an_answer_fails_its_request_at_once() -> None:
    async with speaking("bodies", ['{"jsonrpc":"2.0","method":"notifications/x"}']) as session:
        with pytest.raises(ServerLostError, match="its response has no answer to the request"):
            await said(session)


@pytest.mark.parametrize("kind", ["text/json", "text/plain; charset=utf-8", "application/json-rpc", ""])
async def test_a_json_body_is_read_with_any_content_type(kind: str) -> None:
    async with speaking("bodies", [PLAIN], content_type=kind) as session:
        assert await said(session) == "fine"


async def test_an_html_page_is_not_an_answer() -> None:
    async with listening(OddApp([], in_events=False, content_type="text/html")) as root_url:
        session = Session("tools", url_at(f"{root_url}/mcp"), era=Era.LEGACY, settings=SETTINGS)
        async with session.run():
            with pytest.raises(PeerError, match="text/html"):
                await session.ready()


@pytest.mark.parametrize("text", [PLAIN, f"[{PLAIN}]", PLAIN.replace("ID", "12345")])
async def test_over_http_sse_an_answer_may_be_in_the_response_to_the_post(text: str) -> None:
    async with speaking("HTTP+SSE", [text], in_posts=True) as session:
        assert await said(session, "plain") == "plain"
        assert await said(session) == "fine"


async def test_over_http_sse_an_error_in_the_response_to_a_post_answers_its_request() -> None:
    error = '{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"no"}}'
    async with speaking("HTTP+SSE", [error], in_posts=True) as session:
        with pytest.raises(ServerRefusedError, match="no"):
            await said(session)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_ids_at_an_older_server_are_small(transport: str) -> None:
    async with speaking(transport, [PLAIN.replace("fine", "ID")]) as session:
        ids = [int(await said(session)) for _ in range(3)]
        assert ids == sorted(set(ids))
        assert max(ids) < 1 << 15
