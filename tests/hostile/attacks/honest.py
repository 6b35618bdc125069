"""The honest caller, in a process of its own, so that nothing but the bridge makes it wait.

Run as `python honest.py`, it reads lines of JSON: first where to call, then one that ends it. It calls a tool again and
again, every fourth time on a new connection, and prints one line once it was answered a few times, and one at the end:
how long it waited and what it was told. Knows the standard library only.
"""

from __future__ import annotations

import json
import select
import sys
import time
from collections import Counter
from http.client import HTTPConnection, HTTPException
from typing import Any, Final
from uuid import uuid4

WARM_UP: Final = 20
"""Calls before those that count."""
COMPLETED: Final = "completed"
REFUSED: Final = "503"
_PAUSE_SECONDS: Final = 0.02
_PATIENCE_SECONDS: Final = 30.0
_NEW_EVERY: Final = 4


class Caller:
    """Calls `echo`, and looks at what comes back."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._port, self._path = plan["port"], plan["path"]
        self._headers = {
            "A2A-Version": "1.0",
            "Content-Type": "application/json",
            "Authorization": f"Bearer {plan['token']}",
        }
        self._kept = self._connection()
        self.sent_again = 0
        """How often a connection was closed while a message was on its way."""

    def call(self, *, anew: bool) -> str:
        """One call; what it came to. Where the connection that is kept was closed before it brought anything, as a
        server may do at any time, the same message is sent once more."""
        text = uuid4().hex
        if anew:
            return self._on_new(text)
        try:
            return self._outcome(self._kept, text)
        except ConnectionError:
            self._kept.close()
            self.sent_again += 1
            return self._on_new(text)
        except (OSError, HTTPException, ValueError, KeyError) as exc:
            self._kept.close()
            return f"no answer: {exc!r}"

    def _on_new(self, text: str) -> str:
        connection = self._connection()
        try:
            return self._outcome(connection, text)
        except (OSError, HTTPException, ValueError, KeyError) as exc:
            return f"no answer on a new connection: {exc!r}"
        finally:
            connection.close()

    def _connection(self) -> HTTPConnection:
        return HTTPConnection("127.0.0.1", self._port, timeout=_PATIENCE_SECONDS)

    def _outcome(self, connection: HTTPConnection, text: str) -> str:
        part = {"data": {"skill": "echo", "arguments": {"text": text}}}
        message = {"messageId": text, "role": "ROLE_USER", "parts": [part]}
        request = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        connection.request("POST", self._path, json.dumps(request), self._headers)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status == 503:
            return REFUSED
        task = json.loads(body)["result"]["task"]
        if task["status"]["state"] == "TASK_STATE_COMPLETED" and task["artifacts"][0]["parts"] == [
            {"text": text}
        ]:
            return COMPLETED
        said = task["status"].get("message", {}).get("parts", [{}])[0]
        return f"{task['status']['state']}: {said.get('text')}"


def main() -> None:
    """Call until a second line comes."""
    caller = Caller(json.loads(sys.stdin.readline()))
    waits: list[float] = []
    outcomes: Counter[str] = Counter()
    number = 0
    while not select.select([sys.stdin], [], [], _PAUSE_SECONDS)[0]:
        began = time.perf_counter()
        outcome = caller.call(anew=number % _NEW_EVERY == 0)
        number += 1
        if number > WARM_UP:
            waits.append(time.perf_counter() - began)
            outcomes[outcome] += 1
        elif number == WARM_UP:
            print(json.dumps({}), flush=True)
    print(json.dumps({"waits": waits, "outcomes": outcomes, "again": caller.sent_again}), flush=True)


if __name__ == "__main__":
    main()
