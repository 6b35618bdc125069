"""CORS for hosts in a browser: which pages are admitted, and the headers of their answers."""

from __future__ import annotations

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from bridge.http.request_checks import FaceAddress, RefusedError
from bridge.http.web_origins import WebOrigins, as_browsers_write

ORIGIN = "https://app.example.com"
PLACE = FaceAddress()


async def face(scope: Scope, receive: Receive, send: Send) -> None:
    """Checks a request like every endpoint."""
    request = Request(scope)
    try:
        PLACE.require_own(request.headers)
    except RefusedError as exc:
        await JSONResponse({}, exc.status)(scope, receive, send)
        return
    await JSONResponse({}, 200, {"Mcp-Session-Id": "s", "Vary": "Accept"})(scope, receive, send)


async def asked(method: str, headers: dict[str, str], *origins: str) -> httpx2.Response:
    transport = httpx2.ASGITransport(WebOrigins(origins, PLACE).around(face))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        return await http.request(method, "/mcp", headers=headers)


def allowed(response: httpx2.Response) -> list[str]:
    return [name for name in response.headers if name.startswith("access-control-")]


async def test_a_page_of_a_named_origin_is_answered_and_reads_the_session() -> None:
    response = await asked("POST", {"Origin": ORIGIN}, ORIGIN)
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == ORIGIN
    assert "Mcp-Session-Id" in response.headers["access-control-expose-headers"]
    assert response.headers["vary"] == "Accept, Origin"
    assert "access-control-allow-credentials" not in response.headers


async def test_a_preflight_of_a_named_origin_allows_the_headers_of_mcp() -> None:
    said = {
        "Origin": ORIGIN,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type, mcp-param-city, x-other",
    }
    response = await asked("OPTIONS", said, ORIGIN)
    assert (response.status_code, response.headers["access-control-allow-origin"]) == (204, ORIGIN)
    assert response.headers["access-control-allow-methods"] == "GET, POST, DELETE"
    names = response.headers["access-control-allow-headers"].lower().split(", ")
    assert {"authorization", "mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-param-city"} <= {
        *names
    }
    assert "x-other" not in names
    assert "*" not in response.headers.values()


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://app.example.com",
        "https://app.example.com:8443",
        "https://sub.app.example.com",
        "https://app.example.com.evil.example",
        "null",
    ],
)
@pytest.mark.parametrize("method", ["POST", "OPTIONS"])
async def test_a_page_of_another_origin_is_refused_without_cors_headers(origin: str, method: str) -> None:
    response = await asked(method, {"Origin": origin, "Access-Control-Request-Method": "POST"}, ORIGIN)
    assert (response.status_code, allowed(response)) == (403, [])
    assert response.headers["vary"] == "Origin"


async def test_without_the_key_no_page_is_admitted_and_nothing_changes() -> None:
    assert WebOrigins((), PLACE).around(face) is face
    response = await asked("POST", {"Origin": ORIGIN})
    assert (response.status_code, allowed(response)) == (403, [])


@pytest.mark.parametrize("method", ["POST", "OPTIONS"])
async def test_a_page_of_a_named_origin_is_refused_at_a_foreign_host(method: str) -> None:
    said = {"Origin": ORIGIN, "Host": "rebound.example", "Access-Control-Request-Method": "POST"}
    assert (await asked(method, said, ORIGIN)).status_code == 421


async def test_a_program_that_sends_no_origin_is_answered_as_before() -> None:
    response = await asked("POST", {}, ORIGIN)
    assert (response.status_code, allowed(response)) == (200, [])


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("https://App.Example.com", ORIGIN),
        ("https://app.example.com:443", ORIGIN),
        ("http://localhost:5173", "http://localhost:5173"),
        ("http://[::1]:80", "http://[::1]"),
    ],
)
def test_an_origin_in_the_file_is_compared_in_the_form_of_browsers(written: str, sent: str) -> None:
    assert as_browsers_write(written) == sent
