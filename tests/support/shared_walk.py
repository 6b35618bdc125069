"""Walks everything that a server shows besides tools: lists, reads, prompts, completions and subscriptions.

The walks of a server, directly and through both halves of the bridge, are compared value for value.
"""

from __future__ import annotations

import re
from base64 import b64decode
from typing import Any, Final

from mcp import Client, MCPError

Json = dict[str, Any]

_LISTS: Final = (
    ("resources/list", "resources", "uri"),
    ("resources/templates/list", "resourceTemplates", "uriTemplate"),
    ("prompts/list", "prompts", "name"),
)
_VARIABLE: Final = re.compile(r"\{[+#./;?&]?([^{}*]+)\*?\}")
_TIME: Final = re.compile(r"\d+:\d+:\d+ [AP]M")
_OF_THE_HOP: Final = ("io.modelcontextprotocol/",)
_PAGES_MOST: Final = 100
_READ_MOST: Final = 60
_METHOD_NOT_FOUND: Final = -32601


async def raw(client: Client, method: str, params: Json) -> Json:
    """The raw answer: a result without what belongs to one connection, or an error."""
    data: Json = {"method": method, "params": dict(params)}
    options: Any = {}
    client.session._stamp(data, options)
    try:
        result = await client.session._dispatcher.send_raw_request(method, data["params"], options)
    except MCPError as exc:
        return {"error": exc.error.model_dump()}
    meta = {key: one for key, one in result.get("_meta", {}).items() if not key.startswith(_OF_THE_HOP)}
    rest = {
        key: one for key, one in result.items() if key not in ("resultType", "ttlMs", "cacheScope", "_meta")
    }
    return {**rest, **({"_meta": meta} if meta else {})}


async def walk(client: Client) -> Json:
    """Everything that a client sees, by the request that shows it. What the bridge itself lists is left out."""
    seen: Json = {}
    listed: dict[str, list[Json]] = {}
    for method, key, name in _LISTS:
        entries = await _pages(client, method, key)
        listed[key] = [entry for entry in entries if not _is_bridges(str(entry[name]), entry)]
        seen[method] = listed[key]
    for resource in listed["resources"][:_READ_MOST]:
        seen[f"read {resource['uri']}"] = await _timeless(client, "resources/read", {"uri": resource["uri"]})
    for template in listed["resourceTemplates"]:
        for value in ("1", "no such thing"):
            uri = _VARIABLE.sub(value.replace(" ", "%20"), template["uriTemplate"])
            seen[f"read {uri}"] = await _timeless(client, "resources/read", {"uri": uri})
        ref = {"type": "ref/resource", "uri": template["uriTemplate"]}
        for variable in _VARIABLE.findall(template["uriTemplate"]):
            await _complete(client, seen, ref, variable)
    for prompt in listed["prompts"]:
        arguments = {one["name"]: "1" for one in prompt.get("arguments") or ()}
        for given in (arguments, {}):
            params = {"name": prompt["name"], "arguments": given}
            seen[f"get {prompt['name']} {given}"] = await _timeless(client, "prompts/get", params)
        for name in arguments:
            await _complete(client, seen, {"type": "ref/prompt", "name": prompt["name"]}, name)
    if listed["resources"]:
        seen["read nothing"] = await raw(client, "resources/read", {"uri": "test://nothing/here"})
    if listed["prompts"]:
        seen["get nothing"] = await raw(client, "prompts/get", {"name": "there-is-no-such-prompt"})
    return seen


async def _pages(client: Client, method: str, key: str) -> list[Json]:
    entries: list[Json] = []
    params: Json = {}
    for _ in range(_PAGES_MOST):
        page = await raw(client, method, params)
        if page.get("error", {}).get("code") == _METHOD_NOT_FOUND:
            return []
        entries += page[key]
        if "nextCursor" not in page:
            return entries
        params = {"cursor": page["nextCursor"]}
    raise AssertionError(f"{method} has pages without end")


async def _timeless(client: Client, method: str, params: Json) -> Json:
    """The answer to a request, without the times of day that server-everything puts into contents."""
    answer = await raw(client, method, params)
    for contents in answer.get("contents", ()):
        if "blob" in contents and _TIME.search(text := b64decode(contents["blob"]).decode(errors="replace")):
            contents["blob"] = _TIME.sub("now", text)
        contents |= {"text": _TIME.sub("now", contents["text"])} if "text" in contents else {}
    for message in answer.get("messages", ()):
        held = message["content"].get("resource", {})
        held |= {"text": _TIME.sub("now", held["text"])} if "text" in held else {}
    return answer


async def _complete(client: Client, seen: Json, ref: Json, name: str) -> None:
    for value in ("", "1", "E"):
        params = {"ref": ref, "argument": {"name": name, "value": value}}
        about = ref.get("name") or ref["uri"]
        seen[f"complete {about} {name}={value}"] = await raw(client, "completion/complete", params)


def _is_bridges(name: str, entry: Json) -> bool:
    """Whether an entry is the bridge's own: a card, a part of a task, or an example of a skill."""
    return name.startswith("a2a://") or str(entry.get("title", "")).endswith(": an example")
