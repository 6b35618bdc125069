"""What is another one each time (ids, times, ports, seals) as placeholders: `{task-1}`, `{time}`. Pure.

They are counted in the order in which they appear, so that the same value is the same placeholder throughout a
conversation. Every other byte stays as it is.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from bridge.version import __version__

FIXED_TIME: Final = "2026-01-02T03:04:05.678Z"
"""A time that peers of the bridge say: it is not replaced, so that it is seen to be passed on as it is."""

_UUID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_KIND_BY_KEY: Final = {
    "taskId": "task",
    "id": "task",
    "contextId": "context",
    "messageId": "message",
    "artifactId": "artifact",
}
_KEYED: Final = re.compile(rf'(?:"(\w+)": ?"|/(tasks)/)({_UUID})')

_MILLISECONDS: Final = re.compile(r":\d\d\.\d{3}Z$")
"""How the bridge writes a time; one that is written otherwise keeps its shape in its placeholder."""

_CHANGING: Final = re.compile(
    "|".join(
        (
            rf"(?P<uuid>{_UUID})",
            rf"(?!{re.escape(FIXED_TIME)})(?P<time>\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))",
            r"(?<=127\.0\.0\.1:)(?P<port>[1-9]\d{4})",
            r'(?<=")(?P<etag>[0-9a-f]{32})(?=")',
            r"(?<=-session-id: )(?P<session>[0-9a-f]{32})",
            r"(?<=elicitation-)(?P<question>[0-9a-f]{8})",
            r'(?<=":")(?P<occasion>[0-9a-f]{8})(?=")',
            r"(?P<trace>00-[0-9a-f]{32}-[0-9a-f]{16}-0[01])",
            r"(?<![\w/+=-])(?P<seal>A[Q-Za-f][\w-]{38,})",
            r"(?P<state>eyJ[\w=+/-]+\.[0-9a-f]{64})",
            r"(?:(?<=pageToken=)|(?<=PageToken\":\")|(?<=pageToken\":\"))(?P<page>[\w-]{20,})",
            r'(?:(?<="id":)|(?<="id": )|(?<="requestId":))(?P<call>\d{8,})',
            r'(?<=")(?P<listening>listen-\d+)(?=")',
            rf"(?<=mcp-a2a/)(?P<version>{re.escape(__version__)})",
            rf'(?<="version":")(?P<own_version>{re.escape(__version__)})(?=")',
            r"(?<=python-httpx2/)(?P<http_version>[\d.]+)",
        )
    )
)
_UNCOUNTED: Final = {"time": "time", **dict.fromkeys(("version", "own_version", "http_version"), "version")}
"""Those that stand for whatever is there, each with its name."""


def with_placeholders(text: str) -> str:
    """A conversation without what is another one each time."""
    kinds: dict[str, str] = {}
    for key, path, uuid in _KEYED.findall(text):
        if kind := "task" if path else _KIND_BY_KEY.get(key):
            kinds.setdefault(uuid, kind)
    names: dict[str, str] = {}
    counts: Counter[str] = Counter()

    def placeholder(found: re.Match[str]) -> str:
        value, group = found[0], found.lastgroup or ""
        if group == "time" and not _MILLISECONDS.search(value):
            return f"{{time {re.sub('[0-9]', '0', value)}}}"
        if group in _UNCOUNTED:
            return f"{{{_UNCOUNTED[group]}}}"
        if value not in names:
            kind = kinds.get(value, "id") if group == "uuid" else group
            counts[kind] += 1
            names[value] = f"{{{kind}-{counts[kind]}}}"
        return names[value]

    return _CHANGING.sub(placeholder, text)
