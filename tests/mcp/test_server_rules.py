"""What both revisions ask of a server on the wire: a face over HTTP, and a client that says each thing by itself."""

from __future__ import annotations

import re
from typing import Any, Final

import anyio
import httpx2
import pytest

from bridge.identity.callers.principals import MayUse, may_use_everything
from tests.support.mcp_face import FORM, Face
from tests.support.mcp_serving import served, wire_to
from tests.support.mcp_wire import LEGACY, MODERN, Http, Json, messages_of, opening

ERAS: Final = [LEGACY, MODERN]
FORMS: Final = {"elicitation": {"form": {}}}
LISTED: Final = {
    "server/discover": {},
    "tools/list": {},
    "resources/list": {},
    "resources/templates/list": {},
    "prompts/list": {},
    "resources/read": {"uri": "a2a://one/card"},
}
"""What a client may keep, as the server says."""
SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"


def told(method: str, **params: Any) -> Json:
    """A notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


@pytest.mark.proves("mcp-http-accepted", "mcp-notification-server", "mcp-cancel-late")
async def test_a_notification_is_taken_without_a_word_whatever_it_says() -> None:
    async with wire_to(LEGACY) as (http, _):
        assert (await http.tool(1, "echo"))["result"]
        for notification in (
            told("notifications/cancelled", requestId="never sent"),
            told("notifications/cancelled", requestId=1, reason="too late"),
            told("notifications/tomorrow"),
        ):
            taken = await http.post(notification)
            assert (taken.status_code, taken.content) == (202, b"")
        assert (await http.tool(2, "echo"))["result"]


@pytest.mark.proves("mcp-http-accepted", "mcp-notification-server")
async def test_a_notification_of_a_newer_client_is_taken_without_a_word_too() -> None:
    async with wire_to(MODERN) as (http, _):
        taken = await http.post(told("notifications/cancelled", requestId="never sent"))
        assert (taken.status_code, taken.content) == (202, b"")


@pytest.mark.proves("mcp-http-accepted", "mcp-error-shape")
@pytest.mark.parametrize("version", ERAS)
async def test_what_is_no_message_is_refused_with_an_error_status(version: str) -> None:
    async with wire_to(version) as (http, _):
        refused = await http.post({"jsonrpc": "2.0", "params": {}})
        assert refused.status_code == 400
        error = refused.json()["error"]
        assert isinstance(error["code"], int)
        assert error["message"]


@pytest.mark.proves("mcp-http-answered", "mcp-response-id")
@pytest.mark.parametrize("version", ERAS)
async def test_a_request_is_answered_under_its_id(version: str) -> None:
    async with wire_to(version) as (http, _):
        for request_id in ("a text", 0, 7):
            answered = await http.post(http.message(request_id, "tools/list"))
            kind = answered.headers["content-type"].partition(";")[0]
            assert kind in ("application/json", "text/event-stream")
            assert [message["id"] for message in messages_of(answered)] == [request_id]
            refused = await http.call(request_id, "tools/call", {"name": "refuse", "arguments": {}})
            assert [(one["id"], one["error"]["code"]) for one in refused] == [(request_id, -32602)]


@pytest.mark.proves("mcp-logging", "mcp26-log-level")
@pytest.mark.parametrize("version", ERAS)
async def test_no_log_message_is_declared_or_sent(version: str) -> None:
    async with wire_to(version) as (http, _):
        params = opening(version, None) if version == LEGACY else {}
        greeted = await http.call("g", "initialize" if version == LEGACY else "server/discover", params)
        assert set(greeted[-1]["result"]["capabilities"]) == {"tools", "resources", "prompts"}
        wanted = {"progressToken": "p", "io.modelcontextprotocol/logLevel": "debug"}
        params = {"name": "report", "arguments": {"reports": [[1, 2, "half"]]}, "_meta": wanted}
        methods = [message.get("method") for message in await http.call(1, "tools/call", params)]
        assert methods == ["notifications/progress", None]


# 2025-11-25


@pytest.mark.proves("mcp25-version", "mcp25-initialized")
async def test_a_version_that_is_not_served_is_answered_with_one_that_is() -> None:
    async with wire_to(LEGACY) as (http, _):
        for offered, answered in (
            (LEGACY, LEGACY),
            ("2025-06-18", "2025-06-18"),
            ("1999-01-01", LEGACY),
            ("2999-01-01", LEGACY),
        ):
            http.session = None
            params = {**opening(LEGACY, None), "protocolVersion": offered}
            result = (await http.call("i", "initialize", params))[-1]["result"]
            assert (result["protocolVersion"], result["serverInfo"]["name"]) == (answered, "face")


@pytest.mark.proves("mcp25-ping-server")
async def test_a_ping_is_answered_with_nothing() -> None:
    async with wire_to(LEGACY) as (http, _):
        assert await http.call("p", "ping") == [{"jsonrpc": "2.0", "id": "p", "result": {}}]


@pytest.mark.proves("mcp25-version-unknown")
async def test_a_version_in_the_header_that_is_not_served_is_refused() -> None:
    async with wire_to(LEGACY) as (http, _):
        message = http.message(1, "tools/list")
        assert (await http.post(message, **{"mcp-protocol-version": "1999-01-01"})).status_code == 400


@pytest.mark.proves("mcp25-session-id", "mcp25-session-ended", "mcp25-state-session")
async def test_a_session_has_a_readable_id_and_is_not_found_once_it_has_ended() -> None:
    async with wire_to(LEGACY) as (http, _):
        assert http.session is not None
        assert re.fullmatch(r"[!-~]+", http.session)
        assert (await http.client.delete(http.url, headers=http.headers({}))).is_success
        assert (await http.post(http.message(1, "tools/list"))).status_code == 404


@pytest.mark.proves("mcp25-get", "mcp25-one-stream", "mcp25-question-id")
async def test_a_question_comes_on_the_stream_of_its_call_and_on_no_other() -> None:
    async with wire_to(LEGACY, FORMS) as (http, face):
        assert face.server is not None
        headers = {**http.headers({}), "accept": "text/event-stream"}
        question = {"message": "Who?", "requestedSchema": FORM}
        arguments = {"questions": {"one": question, "two": question}}
        call = http.message(1, "tools/call", {"name": "ask", "arguments": arguments})
        async with http.client.stream("GET", http.url, headers=headers) as listening:
            assert listening.headers["content-type"].startswith("text/event-stream")
            seen = [message async for message in answering(http, call)]
            face.server.stop()
            elsewhere = [line async for line in listening.aiter_lines() if line.startswith("data: {")]
    questions = [message for message in seen if message.get("method") == "elicitation/create"]
    assert len({question["id"] for question in questions}) == 2
    assert [message["id"] for message in seen if "result" in message] == [1]
    assert elsewhere == []


async def answering(http: Http, call: Json) -> Any:
    """What comes on the stream of a call, whose questions are declined as they come."""
    async with http.stream(call) as messages:
        async for message in messages:
            yield message
            if message.get("method") == "elicitation/create":
                await http.post({"jsonrpc": "2.0", "id": message["id"], "result": {"action": "decline"}})


# 2026-07-28


@pytest.mark.proves("mcp26-result-type", "mcp26-rounds-where", "mcp26-cache-hints")
async def test_every_answer_that_may_be_kept_is_complete_and_says_for_how_long() -> None:
    async with wire_to(MODERN, FORMS) as (http, _):
        for method, params in LISTED.items():
            result = (await http.call(1, method, params))[-1]["result"]
            assert result["resultType"] == "complete", method
            assert result["ttlMs"] >= 0
            assert result["cacheScope"] in ("public", "private")


@pytest.mark.proves("mcp26-result-type", "mcp26-rounds-shape", "mcp26-rounds-unsure")
async def test_the_result_of_a_call_says_its_type_and_nobody_has_to_answer_a_round() -> None:
    async with wire_to(MODERN, FORMS) as (http, _):
        asked = (await http.tool(1, "rounds"))["result"]
        assert (asked["resultType"], set(asked["inputRequests"])) == ("input_required", {"who"})
        assert (await http.tool(2, "result", result={"content": []}))["result"]["resultType"] == "complete"


@pytest.mark.proves("mcp26-meta-required", "mcp26-stateless")
async def test_a_request_that_lacks_what_each_has_to_say_is_refused() -> None:
    async with wire_to(MODERN) as (http, _):
        for missing in ("protocolVersion", "clientCapabilities"):
            message = http.message(1, "tools/list")
            del message["params"]["_meta"][f"io.modelcontextprotocol/{missing}"]
            refused = await http.post(message)
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32602)


@pytest.mark.proves("mcp26-version", "mcp26-version-http")
async def test_a_version_that_is_not_served_is_refused_with_those_that_are() -> None:
    async with wire_to(MODERN) as (http, _):
        http.version = "2999-01-01"
        message = Http(http.client, http.url, MODERN).message(1, "tools/list")
        message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = http.version
        refused = await http.post(message, **{"mcp-method": "tools/list"})
        error = refused.json()["error"]
        assert (refused.status_code, error["code"]) == (400, -32022)
        assert MODERN in error["data"]["supported"]


@pytest.mark.proves("mcp26-headers-checked")
async def test_headers_that_are_not_as_the_body_says_are_refused() -> None:
    async with wire_to(MODERN) as (http, _):
        message = http.message(1, "tools/call", {"name": "echo", "arguments": {}})
        for wrong in (
            {"mcp-protocol-version": "2999-01-01"},
            {"mcp-method": "tools/list"},
            {"mcp-name": "result"},
            {"mcp-name": "=?base64?cmVzdWx0?="},
        ):
            refused = await http.post(message, **wrong)
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32020), wrong


@pytest.mark.proves("mcp26-version-mismatch")
async def test_an_older_version_in_the_header_than_in_the_body_is_refused() -> None:
    async with wire_to(MODERN) as (http, _):
        message = http.message(1, "tools/list")
        refused = await http.post(message, **{"mcp-protocol-version": LEGACY})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32600)


@pytest.mark.proves("mcp26-headers-checked", "mcp26-header-case")
async def test_an_encoded_name_and_headers_of_any_case_are_taken() -> None:
    async with wire_to(MODERN) as (http, _):
        message = http.message(1, "tools/call", {"name": "echo", "arguments": {}})
        headers = {name.upper(): value for name, value in http.headers(message).items()}
        headers["MCP-NAME"] = "=?base64?ZWNobw==?="
        taken = await http.client.post(http.url, json=message, headers=headers)
        assert messages_of(taken)[-1]["result"]["structuredContent"]["name"] == "echo"


class Placed(Face):
    """A face whose only tool wants an argument in a header."""

    def tool_called(self, name: str, arguments: Json) -> str | None:
        return name

    def tools(self, may_use: MayUse = may_use_everything, **_: bool) -> list[Json]:
        place = {"type": "string", "x-mcp-header": "Place"}
        return [{"name": "echo", "inputSchema": {"type": "object", "properties": {"place": place}}}]


@pytest.mark.proves("mcp26-params-checked", "mcp26-headers-checked")
async def test_an_argument_that_its_header_does_not_repeat_is_refused() -> None:
    async with served(Placed()) as url, httpx2.AsyncClient(timeout=30) as client:
        http = Http(client, url, MODERN)
        there, absent = (
            http.message(1, "tools/call", {"name": "echo", "arguments": arguments})
            for arguments in ({"place": "Köln"}, {})
        )
        encoded = {"mcp-param-place": "=?base64?S8O2bG4=?="}
        for message, headers in (
            (there, {}),
            (there, {"mcp-param-place": "Bonn"}),
            (there, {"mcp-param-place": "=?base64?Qm9ubg==?="}),
            (absent, encoded),
        ):
            refused = await http.post(message, **headers)
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32020), headers
        for message, headers in ((there, encoded), (absent, {})):
            assert "result" in messages_of(await http.post(message, **headers))[-1]


@pytest.mark.proves("mcp26-method-unknown")
async def test_a_method_that_is_not_known_is_not_found() -> None:
    async with wire_to(MODERN) as (http, _):
        refused = await http.post(http.message(1, "tools/invent"))
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, -32601)


@pytest.mark.proves("mcp26-listen-first", "mcp26-listen-id", "mcp26-listen-granted", "mcp26-server-cancels")
async def test_a_stream_brings_what_was_asked_for_and_names_its_subscription() -> None:
    async with wire_to(MODERN) as (http, face):
        assert face.server is not None
        wanted = {"notifications": {"toolsListChanged": True}}
        seen: list[Json] = []
        with anyio.fail_after(5):
            async with http.stream(http.message("s", "subscriptions/listen", wanted)) as messages:
                async for message in messages:
                    seen.append(message)
                    if message.get("method") == "notifications/subscriptions/acknowledged":
                        await http.tool(1, "grow")
                    if message.get("method") == "notifications/tools/list_changed":
                        face.server.stop()
        assert [message.get("method", message.get("id")) for message in seen] == [
            "notifications/subscriptions/acknowledged",
            "notifications/tools/list_changed",
            "s",
        ]
        named = [(one.get("params") or one["result"])["_meta"][SUBSCRIPTION] for one in seen]
        assert named == ["s", "s", "s"]
