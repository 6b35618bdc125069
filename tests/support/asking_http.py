"""The asking server over Streamable HTTP. Over stdio it does not load this, which takes as long as all the rest."""

from __future__ import annotations

import json
import queue
import select
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from asking_legacy import VERSION, Legacy, Session
from asking_shapes import PARSE_ERROR, AskingServer, Call, Json, Refused, is_request, pass_on


def serve_http(server: AskingServer, port: int) -> None:
    """Streamable HTTP on loopback."""

    class Handler(HttpHandler):
        asking = server

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as http:
        http.daemon_threads = True
        print(f"http://127.0.0.1:{http.server_address[1]}/mcp", flush=True)
        http.serve_forever()


class HttpHandler(BaseHTTPRequestHandler):
    """One POST, one message. Its answer is JSON, or a stream when something goes out before the response."""

    asking: AskingServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in http.server
        """Nothing for each request."""

    def do_GET(self) -> None:
        """There is no stream but those of requests."""
        self._reply(405)

    def do_DELETE(self) -> None:
        """The end of a session."""
        if isinstance(self.asking, Legacy):
            self.asking.sessions.pop(self.headers.get("Mcp-Session-Id", ""), None)
        self._reply(200 if isinstance(self.asking, Legacy) else 405)

    def do_POST(self) -> None:
        """A request, a notification, or in legacy a response."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        message: Any = None
        try:
            try:
                message = json.loads(body)
            except ValueError:
                raise Refused("no JSON", PARSE_ERROR, status=400) from None
            has_answer = is_request(message)
            self._check_headers()
            session = self._session(message) if isinstance(self.asking, Legacy) else None
        except Refused as refused:
            request_id = message.get("id") if isinstance(message, dict) else None
            return self._reply(refused.status, {"id": request_id, "error": refused.error})
        if not has_answer:
            if session is not None:  # 2026-07-28 knows no notification of a client over HTTP
                pass_on(self.asking, session, message)
            return self._reply(202)
        return self._answer(message, session)

    def _check_headers(self) -> None:
        accepted = self.headers.get("Accept", "")
        if "application/json" not in accepted or "text/event-stream" not in accepted:
            raise Refused("Accept has to list application/json and text/event-stream", status=406)
        if self.headers.get_content_type() != "application/json":
            raise Refused("Content-Type has to be application/json", status=415)
        if "Origin" in self.headers:
            raise Refused("no page in a browser may call this", status=403)

    def _session(self, message: Json) -> Session:
        assert isinstance(self.asking, Legacy)
        session_id = self.headers.get("Mcp-Session-Id")
        if message.get("method") == "initialize" and session_id is None:
            session = Session()
            self.asking.sessions[session.id] = session
            return session
        if session_id is None:
            raise Refused("Bad Request: the header Mcp-Session-Id is missing", status=400)
        if session_id not in self.asking.sessions:
            raise Refused("Session not found", status=404)
        if self.headers.get("MCP-Protocol-Version") != VERSION:
            raise Refused(f"Bad Request: the header MCP-Protocol-Version has to be {VERSION}", status=400)
        return self.asking.sessions[session_id]

    def _answer(self, message: Json, session: Session | None) -> None:
        outgoing: queue.Queue[Json] = queue.Queue()
        call = Call(
            message, outgoing.put, {name.lower(): value for name, value in self.headers.items()}, session
        )
        self.asking.enter(call)
        threading.Thread(target=self.asking.take, args=(call,), daemon=True).start()
        is_stream = False
        try:
            while (said := self._next(outgoing)) is not None:
                is_last = "method" not in said
                if is_last and not is_stream:
                    more = (
                        {"Mcp-Session-Id": session.id}
                        if session and message["method"] == "initialize"
                        else {}
                    )
                    return self._reply(call.status, said, more)
                if not is_stream:
                    self._begin_stream()
                    is_stream = True
                self.wfile.write(b"data: " + _encoded(said) + b"\n\n")
                if is_last:
                    return None
        except OSError:
            pass
        self.close_connection = True
        return self.asking.stop(call)

    def _next(self, outgoing: queue.Queue[Json]) -> Json | None:
        """What goes out next; None when the client has hung up."""
        while True:
            try:
                return outgoing.get(timeout=0.02)
            except queue.Empty:
                # A queue and a socket cannot be waited for together.
                if select.select([self.connection], [], [], 0)[0] and not self.connection.recv(
                    1, socket.MSG_PEEK
                ):
                    return None

    def _begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("X-Accel-Buffering", "no")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def _reply(self, status: int, message: Json | None = None, headers: Json | None = None) -> None:
        body = b"" if message is None else _encoded(message)
        self.send_response(status)
        for name, value in {"Content-Length": len(body), **(headers or {})}.items():
            self.send_header(name, str(value))
        if message is not None:
            self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)


def _encoded(message: Json) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode()
