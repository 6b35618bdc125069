"""What a start suggests to try: a call of one skill, as a line of this command and as one of curl.

It is a skill whose tool says that it only reads where there is one, and which needs no arguments where there is one:
whoever copies the line should change nothing by it, and not have to think.
"""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Final

from bridge.access.verifiers import Scheme
from bridge.translate.arguments import required_of
from bridge.translate.examples import example_of
from bridge.web import API_KEY_HEADER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bridge.access.verifiers import Credential
    from bridge.assembly.published import Published
    from bridge.jsonvalues import JsonObject
    from bridge.tools_as_agent.skills import Skill

_OPTIONS: Final = {Scheme.BEARER: "--bearer", Scheme.API_KEY: "--api-key"}
_HEADERS: Final = {Scheme.BEARER: "Authorization: Bearer ", Scheme.API_KEY: f"{API_KEY_HEADER}: "}


def lines_for(agent: Published, base: str, credentials: Sequence[Credential]) -> Iterator[str]:
    """The command lines, those of this command first; none when there is nothing that may be called."""
    known = next((one for one in credentials if one.reference), None)
    may_use = known.principal.in_face(agent.name).may_use if known else lambda _: True
    skills = [skill for skill in agent.agent.published if may_use(skill.id)]
    if not skills or (credentials and known is None):
        return
    skill = min(skills, key=_risk_and_trouble)
    arguments = _example(skill)
    yield shlex.join(["mcp-a2a", "call", base, skill.id, *_words(arguments), *_options(known)])
    yield _curl(base, skill.id, arguments, known)


def _risk_and_trouble(skill: Skill) -> tuple[bool, bool, bool]:
    says = skill.tool.annotations
    return (
        says.get("destructiveHint") is True or skill.override.confirm is True,
        says.get("readOnlyHint") is not True,
        bool(required_of(skill.tool.input_schema)),
    )


def _example(skill: Skill) -> JsonObject:
    """What the skill needs, and no more."""
    required = required_of(skill.tool.input_schema)
    example = (example_of(skill.tool) if required else None) or {}
    return {name: example[name] for name in required if name in example}


def _words(arguments: JsonObject) -> Iterator[str]:
    if any(isinstance(value, dict | list) for value in arguments.values()):
        yield from ("--json", json.dumps(arguments, ensure_ascii=False))
        return
    for name, value in arguments.items():
        yield f"{name}={value if isinstance(value, str) else json.dumps(value)}"


def _options(known: Credential | None) -> tuple[str, ...]:
    return (_OPTIONS[known.scheme], known.reference) if known else ()


def _curl(base: str, skill_id: str, arguments: JsonObject, known: Credential | None) -> str:
    message = {"role": "ROLE_USER", "parts": [{"data": {"skill": skill_id, "arguments": arguments}}]}
    said = json.dumps(message, ensure_ascii=False, separators=(",", ":"))[1:-1].replace("'", "'\\''")
    body = (
        '{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":'
        f'{{"messageId":"\'$(date +%s)\'",{said}}}}}}}'
    )
    headers = "-H 'A2A-Version: 1.0' -H 'Content-Type: application/json'"
    return f"curl -s {shlex.quote(base)} {headers}{_header(known)} -d '{body}'"


def _header(known: Credential | None) -> str:
    """The header of a secret, which the shell puts in from where it is."""
    if known is None:
        return ""
    source, _, place = known.reference.partition(":")
    secret = f"${{{place}}}" if source == "env" else f"$(cat {shlex.quote(place)})"
    return f' -H "{_HEADERS[known.scheme]}{secret}"'
