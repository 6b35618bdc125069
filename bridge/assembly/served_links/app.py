"""Answers requests for linked resources, over HTTP.

For each request, the bridge reads the resource from its server, in the name of the caller and under the rights that the
caller has now. The answer is a file to save: no browser shows it as a page, or runs its scripts, in the origin of the
bridge.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import anyio
from pydantic import JsonValue
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bridge.a2a.model.errors import FORBIDDEN, METHOD_NOT_ALLOWED, A2AError
from bridge.a2a.server.admission import AdmissionControl, CallerChangedError, RequestAdmission
from bridge.a2a.server.app import as_a2a
from bridge.errors import BusyError, PeerError
from bridge.http.request_checks import etags_in
from bridge.identity.callers.principals import Principal
from bridge.identity.callers.resource_rights import scheme_of
from bridge.local.file_names import named_by_type, safe_file_name
from bridge.mcp.client.call_queue import Claimant
from bridge.mcp.client.faults import ServerRefusedError
from bridge.mcp.client.session import resource_of
from bridge.mcp.client.upstream import Upstream
from bridge.seal import HandleError
from bridge.tools_as_agent.run_for_caller import require_caller_token
from bridge.tools_as_agent.served_links import PATH, ServedLink, ServedLinks
from bridge.tools_as_agent.shared_rights import view_of
from bridge.translate.content import filename_in
from bridge.translate.files import standard_base64

if TYPE_CHECKING:
    from bridge.tools_as_agent.agent import ToolsAgent

logger = logging.getLogger(__name__)

METHOD: Final = "ReadLink"
"""The name of such a request in audits, traces and metrics."""
_BYTES: Final = "application/octet-stream"
_INERT: Final = frozenset(
    {
        *(
            "text/plain",
            "text/csv",
            "text/markdown",
            "application/json",
            "application/zip",
            "application/gzip",
        ),
        *("application/pdf", "image/png", "image/jpeg", "image/gif", "image/webp"),
    }
)
"""The bridge keeps these media types, audio and video, because no program runs code in such a file. Any other type
becomes bytes."""
_HEADERS: Final[Mapping[str, str]] = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "private, no-cache",
    "Accept-Ranges": "none",
}
"""Headers of every answer. A cache asks the bridge each time, so a caller that has lost a right gets nothing."""


@dataclass(frozen=True)
class _Fault(Exception):
    """A request is answered with this status."""

    status: int
    words: str


@dataclass(frozen=True, slots=True)
class _SavedFile:
    """What a client saves."""

    content: bytes
    name: str
    media_type: str


async def serve_link(
    agent: ToolsAgent,
    links: ServedLinks,
    admission: AdmissionControl,
    base_path: str,
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    """Answer one request. `base_path` is the path of the agent."""
    headers = Headers(scope=scope)
    text = str(scope["path"]).removeprefix(scope.get("root_path", "")).removeprefix(PATH)
    with admission.begin(headers, base_path) as visit:
        try:
            file = await _file(agent, links, text, str(scope["method"]), visit)
            response = _answer(file, headers, is_head=scope["method"] == "HEAD")
        except Exception as exc:  # noqa: BLE001 - `_fault_in` logs what nobody expected
            response = _fault_in(exc, visit)
        await response(scope, receive, send)


async def _file(
    agent: ToolsAgent, links: ServedLinks, text: str, verb: str, visit: RequestAdmission
) -> _SavedFile:
    principal = await visit.admit()
    if verb not in ("GET", "HEAD"):
        raise A2AError(METHOD_NOT_ALLOWED, "A link is read with GET", headers={"Allow": "GET, HEAD"})
    link = links.opened(text)
    if link.origin.principal != principal.name:
        raise HandleError  # as if it did not exist
    visit.perform(METHOD)
    if visit.hop is not None:
        visit.hop.skill, visit.hop.subject = link.origin.skill_id, link.uri
    _allowed(agent, link, principal)
    if visit.hop is not None:
        visit.hop.peer = link.origin.source_key
    with suppress(CallerChangedError):  # its rights are judged again
        await visit.pass_gate()
    principal = await visit.readmit()
    return _file_of(await _contents(agent, link, principal, _allowed(agent, link, principal)), link)


def _allowed(agent: ToolsAgent, link: ServedLink, principal: Principal) -> Upstream:
    """The server of a link, if the caller may read the link now.

    Raises:
        A2AError: FORBIDDEN, the caller has lost the right; UNAUTHENTICATED, its token has expired.
        HandleError: the agent no longer has this server.
    """
    origin, content = link.origin, agent.options.content
    upstream = agent.upstreams.get(origin.source_key)
    if upstream is None:
        raise HandleError
    skill = agent.skill_set.all_usable_by(principal).by_id.get(origin.skill_id)
    if skill is None or skill.source_key != origin.source_key:
        raise A2AError(FORBIDDEN, "You may no longer use the skill that gave this link")
    is_of_resources = skill.tool.stands_for is not None and skill.tool.stands_for.kind == "resources"
    is_withheld = scheme_of(link.uri) == "file" and not content.allow_file_links
    if is_withheld or (
        is_of_resources and not view_of(principal, content.allow_file_links).may_read(link.uri)
    ):
        raise A2AError(FORBIDDEN, "You may not read this resource, or it is a file of the server")
    require_caller_token(upstream, principal, origin.skill_id)
    return upstream


async def _contents(
    agent: ToolsAgent, link: ServedLink, principal: Principal, upstream: Upstream
) -> list[JsonValue]:
    """The contents of the resource, read in a session of the caller.

    Raises:
        BusyError: the server is busy.
        PeerError: it gives no answer, or wants a login that the caller has not made.
    """
    since = None
    if upstream.logins is not None and (since := await upstream.logins.usable_since(principal.name)) is None:
        raise PeerError(f"{upstream.name} wants you to log in: call the skill again, which says where")
    run = agent.options.run
    upstream.reserve(principal.name)
    try:
        async with upstream.queue(principal.name, link.origin.context_id, principal.token, since) as queue:
            caller = Claimant(principal.name, is_secret=True)
            async with queue.slot(caller, run.queue_timeout_seconds) as slot:
                with anyio.move_on_after(run.call_timeout_seconds):
                    return await resource_of(slot.session, link.uri)
    finally:
        upstream.release(principal.name)
    raise _Fault(504, f"{upstream.name} gave no answer in {run.call_timeout_seconds:g} s")


def _file_of(contents: list[JsonValue], link: ServedLink) -> _SavedFile:
    """The contents as one file: the text or the bytes, or else all contents as JSON."""
    only = contents[0] if len(contents) == 1 else None
    if isinstance(only, dict):
        mime_type = only.get("mimeType")
        media_type = mime_type if isinstance(mime_type, str) else ""
        if isinstance(text := only.get("text"), str):
            return _named(text.encode(errors="replace"), link, media_type or "text/plain")
        if isinstance(blob := only.get("blob"), str):
            try:
                return _named(
                    base64.b64decode(standard_base64(blob), validate=True), link, media_type or _BYTES
                )
            except ValueError as exc:
                raise PeerError("The server gave bytes that are no base64") from exc
    return _named(json.dumps(contents, ensure_ascii=False).encode(errors="replace"), link, "application/json")


def _named(content: bytes, link: ServedLink, media_type: str) -> _SavedFile:
    plain = media_type.partition(";")[0].strip().lower()
    is_inert = plain in _INERT or plain.startswith(("audio/", "video/"))
    name = safe_file_name(filename_in(link.uri) or "") or safe_file_name(link.name)
    return _SavedFile(
        content, name or named_by_type("resource", plain) or "resource", plain if is_inert else _BYTES
    )


def _answer(file: _SavedFile, headers: Headers, *, is_head: bool) -> Response:
    etag = f'"{hashlib.sha256(file.media_type.encode() + file.content).hexdigest()[:32]}"'
    ascii_name = file.name.encode("ascii", "replace").decode().replace("?", "_")
    response_headers = {
        **_HEADERS,
        "ETag": etag,
        "Content-Disposition": f"attachment; filename=\"{ascii_name}\"; filename*=UTF-8''{quote(file.name, safe='')}",
    }
    if etag in etags_in(headers):
        return Response(status_code=304, headers=response_headers)
    response_headers["Content-Length"] = str(len(file.content))
    is_text = file.media_type.startswith("text/")
    response_headers["Content-Type"] = f"{file.media_type}; charset=utf-8" if is_text else file.media_type
    return Response(b"" if is_head else file.content, headers=response_headers)


def _fault_in(exc: Exception, visit: RequestAdmission) -> Response:
    match exc:
        case _Fault():
            status, words = exc.status, exc.words
        case HandleError():
            status, words = 404, "This link does not work: it has expired, or it belongs to somebody else"
        case ServerRefusedError():
            status, words = 404, f"The server does not give this resource: {exc}"
        case BusyError():
            status, words = 503, str(exc)
        case PeerError():
            status, words = 502, str(exc)
        case _:
            error = as_a2a(exc)
            visit.fail(error)
            body = json.dumps({"error": {"message": str(error)}})
            headers = {**_HEADERS, **error.headers}
            return Response(body, error.kind.http_status, headers, "application/json")
    if visit.hop is not None:
        visit.hop.error = f"HTTP_{status}"
    logger.info("a link cannot be read: %s", words)
    return Response(json.dumps({"error": {"message": words}}), status, _HEADERS, "application/json")
