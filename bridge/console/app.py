"""The console as an ASGI application below `/console`: routes each request to its page.

GET   a page, as HTML or JSON           the script of a page posts its form as JSON
GET   /signed-in                        the browser comes back from an issuer with its answer
POST  changes something                 /sign-in  /sign-out  /news  /tasks/AGENT/ID/{answer,cancel}  /try/AGENT/SKILL
                                         /lines/AGENT/SKILL  /explain/AGENT
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pydantic import JsonValue, ValidationError
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from bridge.a2a.model.errors import A2AError
from bridge.assembly.bridge import Bridge
from bridge.assembly.plan import CONSOLE, ProcessPlan
from bridge.assembly.remote_agents import keys_of
from bridge.assembly.routes import MountedPages
from bridge.console.answers import answer, waiting_page
from bridge.console.configuration import ServedConfiguration, configuration
from bridge.console.console_access import SIGN_IN_PATH, ConsoleAccess, Visit
from bridge.console.forms import WrongValuesError
from bridge.console.issuer_sign_in import BACK_PATH, IssuerSignIn
from bridge.console.mapping import mapping
from bridge.console.news import NewsStream
from bridge.console.operations import AskedQuestions, operations_on, waiting_for
from bridge.console.overview import load_for, overview
from bridge.console.pages import HEADERS, STATIC, json_response, page_response, static_response
from bridge.console.parts import file_of, media_headers, places_in
from bridge.console.paths import segments_of
from bridge.console.people import people
from bridge.console.tab_streams import TabStreams
from bridge.console.task_pages import path_of_task, task_list, task_page
from bridge.console.trials import (
    call_skill,
    call_tool,
    explained,
    skill_of,
    skill_page,
    tool_of,
    tool_page,
    try_list,
    typed_lines,
)
from bridge.errors import BusyError, StoreAwayError
from bridge.http.request_checks import RefusedError
from bridge.text.jsonvalues import JsonObject

logger = logging.getLogger(__name__)

_FACE: Final = "console"
"""The endpoint of a sign-in in the audit."""
_SIGNED_OUT: Final = "signed-out"
"""The topic of ended sessions between replicas."""
_STATIC: Final = "/static/"

_SIGN_INS: Final = (("POST", SIGN_IN_PATH), ("GET", BACK_PATH))
"""The requests of a sign-in."""

_NOT_LET_IN: Final = frozenset({401, 403, 421})
"""The HTTP statuses of requests that are refused because of their sender."""


def mount_console(bridge: Bridge, served: ServedConfiguration | None = None) -> None:
    """Serve the console of a bridge at `CONSOLE`. `served` gives the configuration to show."""
    bridge.app.mount(MountedPages("Console", CONSOLE, ConsoleApp(bridge, bridge.plan.place, served)))


class ConsoleApp:
    """The pages of one bridge."""

    def __init__(self, bridge: Bridge, place: ProcessPlan, served: ServedConfiguration | None = None) -> None:
        """Read nothing from the bridge before the bridge serves. `served` gives the configuration to show."""
        self._served = served
        self._bridge = bridge
        self._asked: defaultdict[str, AskedQuestions] = defaultdict(AskedQuestions)
        """Who may answer the waiting tasks, by the names of their agents."""
        self._gate = ConsoleAccess(place, bridge.access, lambda: keys_of(place))
        self._issuers = IssuerSignIn(self._gate, bridge.access, bridge.admission.issuers.login_at)
        self._tabs = TabStreams(bridge.access, self._gate.principal_of)
        bridge.words.listen(_SIGNED_OUT, self._end_session)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request of a browser."""
        visit: Visit | None = None
        try:
            visit = await self._gate.visit(scope)
            response = await self._answered(visit, scope, receive)
        except RefusedError as exc:
            self._audit_refusal(visit, exc.status)
            response = refused = _refusal(visit, exc.status, str(exc))
            refused.headers.update(exc.headers)
        except A2AError as exc:
            response = refused = _refusal(visit, exc.kind.http_status, str(exc))
            refused.headers.update(exc.headers)
        except ValidationError:
            response = _refusal(visit, 400, "This name is not valid")
        except BusyError as exc:
            response = _refusal(visit, 503, str(exc))
        except StoreAwayError as exc:
            logger.debug("a page failed: %s", exc)  # the store itself logs the outage once
            response = _refusal(visit, 503, "The bridge cannot reach its stored tasks at the moment")
        except Exception:
            logger.exception("a page failed")
            response = _refusal(visit, 500, "The bridge failed to make this page; its log says why")
        await response(scope, receive, send)

    async def _answered(self, visit: Visit, scope: Scope, receive: Receive) -> ASGIApp:
        name = visit.path.removeprefix(_STATIC)
        if name in STATIC and visit.path.startswith(_STATIC) and visit.verb in ("GET", "HEAD"):
            return static_response(name)
        if visit.verb == "POST":
            return self._kept(
                visit, await self._posted(visit, await self._gate.body_of(visit, scope, receive))
            )
        if visit.verb not in ("GET", "HEAD"):
            raise RefusedError(405, "This path takes GET and POST", {"Allow": "GET, HEAD, POST"})
        if visit.path == BACK_PATH and visit.verb == "GET":
            return await self._back(visit, Headers(scope=scope))
        if visit.leads_on:
            return _leading_to(visit, visit.leads_on, "leads_on.html")
        if visit.principal is None:
            return self._kept(visit, self._sign_in_page(visit))
        return self._kept(visit, await self._page(visit, segments_of(visit.path)))

    def _kept(self, visit: Visit, answer: ASGIApp) -> ASGIApp:
        """Add the cookie that extends the session of an active browser. Requests for news do not extend it."""
        if isinstance(answer, Response) and not visit.keeps_cookie and "set-cookie" not in answer.headers:
            answer.headers["Set-Cookie"] = self._gate.cookie(visit, visit.session)
        return answer

    def _sign_in_page(self, visit: Visit) -> Response:
        self._gate.require_sign_in(visit)
        if visit.wants_json:
            raise RefusedError(401, "Sign in at the console first")
        told: JsonObject = {
            "has_certificate": visit.shown is not None,
            "issuers": [
                {"name": issuer.name, "issuer": issuer.place.issuer} for issuer in self._issuers.issuers
            ],
        }
        return page_response(visit, "sign_in.html", told, 401)

    async def _page(self, visit: Visit, path: Sequence[str]) -> Response:
        match path:
            case []:
                waiting = await waiting_for(self._bridge, visit, self._asked)
                return page_response(visit, "overview.html", await overview(self._bridge, visit, waiting))
            case ["tasks"]:
                return page_response(visit, "tasks.html", await task_list(self._bridge, visit))
            case ["tasks", agent, task_id]:
                return page_response(visit, "task.html", await task_page(self._bridge, visit, agent, task_id))
            case ["try"]:
                return page_response(visit, "try.html", try_list(self._bridge, visit))
            case ["try", "mcp", server, tool]:
                return page_response(visit, "skill.html", tool_page(self._bridge, visit, server, tool))
            case ["try", agent, skill]:
                return page_response(visit, "skill.html", await skill_page(self._bridge, visit, agent, skill))
            case ["mapping"]:
                return page_response(visit, "mapping.html", mapping(self._bridge, visit))
            case ["configuration"]:
                _require_operator(visit)
                return page_response(visit, "configuration.html", configuration(self._served, visit))
            case ["people"]:
                _require_operator(visit)
                return page_response(visit, "people.html", await people(self._bridge, visit))
            case ["answer"]:
                return page_response(visit, "answer.html", await waiting_page(self._bridge, visit))
            case ["tasks", agent, task_id, "files", place]:
                return await self._file(visit, agent, task_id, place)
        raise RefusedError(404, "There is nothing here")

    async def _file(self, visit: Visit, agent: str, task_id: str, place: str) -> Response:
        task = await operations_on(self._bridge, visit, agent).task(task_id)
        part = dict(places_in(task)).get(place)
        if part is None or part.url is not None:
            raise RefusedError(404, "There is nothing here")
        data, kind, name = file_of(part)
        return Response(data, 200, {**HEADERS, **media_headers(kind, name)})

    async def _numbers(self, visit: Visit) -> JsonObject:
        """The numbers that every page shows."""
        waiting = await waiting_for(self._bridge, visit, self._asked)
        return {**await load_for(self._bridge, visit), "waiting": waiting}

    async def _posted(self, visit: Visit, body: JsonObject) -> ASGIApp:
        if visit.path == SIGN_IN_PATH:
            return await self._sign_in(visit, body)
        if visit.principal is None:
            raise RefusedError(401, "Sign in first: the session is over")
        if visit.path == "/sign-out":
            return self._sign_out(visit)
        try:
            return await self._changed(visit, body)
        except WrongValuesError as exc:
            return json_response({"problems": [*exc.problems]}, 422)

    async def _changed(self, visit: Visit, body: JsonObject) -> ASGIApp:
        match segments_of(visit.path):
            case ["news"]:
                return await self._news_for(visit, body.get("task"))
            case ["tasks", agent, task_id, "cancel"]:
                await operations_on(self._bridge, visit, agent).cancel(task_id)
                return json_response({"to": f"{visit.root}{path_of_task(agent, task_id)}"})
            case ["lines", "mcp", server, tool]:
                return json_response(typed_lines(visit, tool_of(self._bridge, visit, server, tool), body))
            case ["lines", agent, skill]:
                target = skill_of(visit, operations_on(self._bridge, visit, agent).agent, skill)
                return json_response(typed_lines(visit, target, body))
            case ["explain", agent]:
                return json_response(await explained(self._bridge, visit, agent, body))
            case ["try", "mcp", server, tool]:
                return await call_tool(self._bridge, self._tabs, visit, server, tool, body)
            case ["try", agent, skill]:
                path = await call_skill(self._bridge, visit, agent, skill, body)
                return json_response({"to": f"{visit.root}{path}"})
            case ["tasks", agent, task_id, "answer"]:
                await answer(self._bridge, visit, agent, task_id, body)
                return json_response({"to": f"{visit.root}{path_of_task(agent, task_id)}"})
        raise RefusedError(404, "There is nothing here")

    async def _sign_in(self, visit: Visit, body: JsonObject) -> Response:
        if isinstance(name := body.get("issuer"), str):
            page, begun = await self._issuers.begin(visit, name)
            leading = json_response({"to": page})
            leading.headers["Set-Cookie"] = begun
            return leading
        session, principal = await self._gate.sign_in(visit, str(body.get("token") or "").strip())
        self._bridge.telemetry.tell_of_sign_in(_FACE, principal.name)
        signed_in = json_response({"to": visit.root})
        signed_in.headers["Set-Cookie"] = self._gate.cookie(visit, session)
        return signed_in

    def _sign_out(self, visit: Visit) -> Response:
        self._end_session(visit.session.mark)
        self._bridge.words.send(_SIGNED_OUT, visit.session.mark)
        signed_out = json_response({"to": visit.root})
        signed_out.headers["Set-Cookie"] = self._gate.no_cookie(visit)
        return signed_out

    def _end_session(self, mark: str) -> None:
        """End a session in this process, after a sign-out at this process or at another replica."""
        self._gate.end(mark)
        self._tabs.end(mark)

    async def _back(self, visit: Visit, headers: Headers) -> Response:
        """Finish a sign-in, with a page that links to the next page. After a redirect from the issuer's site, the
        browser would not send the session cookie."""
        session, principal, ended = await self._issuers.finish(visit, headers)
        self._bridge.telemetry.tell_of_sign_in(_FACE, principal.name)
        page = _leading_to(replace(visit, path=""), visit.root, "signed_in.html")
        page.headers.append("Set-Cookie", self._gate.cookie(visit, session))
        page.headers.append("Set-Cookie", ended)
        return page

    def _audit_refusal(self, visit: Visit | None, status: int) -> None:
        """Write requests that are refused because of their sender, and failed sign-ins, to the audit."""
        who = "" if visit is None or visit.principal is None else visit.principal.name
        is_sign_in = visit is not None and (visit.verb, visit.path) in _SIGN_INS
        if is_sign_in or status in _NOT_LET_IN:
            self._bridge.telemetry.tell_of_sign_in(_FACE, who, error=f"HTTP_{status}")

    async def _news_for(self, visit: Visit, task: JsonValue) -> ASGIApp:
        """The news stream of a tab, with the events of a task if the page is about a task."""
        watched = None
        match segments_of(task) if isinstance(task, str) else ():
            case []:
                pass
            case ["tasks", agent, task_id]:
                watched = await operations_on(self._bridge, visit, agent).watched(task_id)
            case _:
                raise RefusedError(400, "This is not the path of a task")
        try:  # last, because the limit counts a stream only when it has begun
            return NewsStream(self._tabs.take(visit), self._numbers, watched)
        except RefusedError:
            if watched is not None:
                watched.close()
            raise


def _leading_to(visit: Visit, place: str, template: str) -> Response:
    """A page that links to `place`. The next request comes from our own site, so the browser sends its session
    cookie."""
    page = page_response(replace(visit, wants_json=False), template, {"to": place})
    page.headers["Refresh"] = f"0;url={place}"
    return page


def _require_operator(visit: Visit) -> None:
    if not visit.reads_all:
        raise RefusedError(403, "This page is for operators: set `operator` of a principal")


def _refusal(visit: Visit | None, status: int, words: str) -> Response:
    if visit is None or visit.wants_json or visit.verb == "POST":
        return json_response({"error": {"message": words}}, status)
    return page_response(visit, "refusal.html", {"status": status, "words": words}, status)
