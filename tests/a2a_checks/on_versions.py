"""Checks of version negotiation and of service parameters. Spec: A2A 1.0 sections 3.2.6 and 3.6."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from tests.a2a_checks.bindings import GET, LIST, SEND, STREAM
from tests.a2a_checks.errors import Fault, Kind
from tests.a2a_checks.occasions import Occasions
from tests.a2a_checks.table import JSONRPC, Check, Failed, Level, Need, Section, need, require
from tests.a2a_checks.talk import UNKNOWN_TASK, Talk
from tests.a2a_checks.wire import Request

STRANGE: Final = ("9.9", "1.9", "2.0", "banana")
UNKNOWN: Final = {"id": UNKNOWN_TASK}


def _declares(talk: Talk, version: str) -> bool:
    return talk.card.speaks(talk.binding.url, talk.binding.name, version)


async def speaks_one(talk: Talk, agent: Occasions) -> None:
    await talk.refused(Kind.TASK_NOT_FOUND, GET, UNKNOWN, A2A_Version="1.0")


async def passes_patches_over(talk: Talk, agent: Occasions) -> None:
    for version in ("1.0.0", "1.0.7"):
        await talk.refused(Kind.TASK_NOT_FOUND, GET, UNKNOWN, A2A_Version=version)


async def refuses_strange_versions(talk: Talk, agent: Occasions) -> None:
    for version in STRANGE:
        if not _declares(talk, version):
            await _is_refused(talk, GET, UNKNOWN, version)


async def refuses_them_everywhere(talk: Talk, agent: Occasions) -> None:
    for operation, params in ((SEND, agent.send()), (LIST, {}), (STREAM, agent.send())):
        await _is_refused(talk, operation, params, "9.9")


async def _is_refused(talk: Talk, operation: str, params: dict[str, Any], version: str) -> None:
    try:
        await talk.refused(Kind.VERSION_NOT_SUPPORTED, operation, params, A2A_Version=version)
    except Failed as exc:
        raise Failed(f"{operation} of {version}: {exc.expected}", exc.came) from None


async def takes_none_for_the_older(talk: Talk, agent: Occasions) -> None:
    need(not _declares(talk, "0.3"), "the interface is declared for 0.3, too")
    await talk.refused(Kind.VERSION_NOT_SUPPORTED, GET, UNKNOWN, A2A_Version="")
    by_hand = _with_version(talk.request(GET, UNKNOWN), "A2A-Version", "")
    reply = talk.binding.reply(await talk.wire.send_by_hand(by_hand))
    talk.require_refusal(reply, Kind.VERSION_NOT_SUPPORTED)


async def speaks_the_older_without(talk: Talk, agent: Occasions) -> None:
    need(_declares(talk, "0.3"), "the interface is not declared for 0.3")
    need(talk.binding.name == JSONRPC, "0.3 has other paths")
    await talk.refused(Fault.METHOD_NOT_FOUND, GET, UNKNOWN, A2A_Version="")


async def takes_it_from_the_query(talk: Talk, agent: Occasions) -> None:
    request = talk.request(GET, UNKNOWN, A2A_Version="")
    asked = replace(request, url=f"{request.url}?A2A-Version=1.0")
    talk.require_refusal(await talk.ask_with(GET, asked), Kind.TASK_NOT_FOUND)


async def takes_any_case(talk: Talk, agent: Occasions) -> None:
    for name in ("a2a-version", "A2A-VERSION", "a2A-vErSiOn"):
        request = _with_version(talk.request(GET, UNKNOWN), name, "1.0")
        reply = talk.binding.reply(await talk.wire.send_by_hand(request))
        talk.require_refusal(reply, Kind.TASK_NOT_FOUND)


def _with_version(request: Request, name: str, version: str) -> Request:
    """The request with this header in these letters, to be sent by hand."""
    others = {key: value for key, value in request.headers.items() if key != "A2A-Version"}
    return replace(request, headers={**others, name: version})


async def declares_what_it_speaks(talk: Talk, agent: Occasions) -> None:
    reply = await talk.ask(GET, UNKNOWN)
    refusal = talk.require_refusal(reply)
    is_right = talk.binding.says(refusal, Kind.TASK_NOT_FOUND)
    require(is_right, f"{talk.binding.name} 1.0 at {talk.binding.url}", refusal.shown())


def _check(check_id: str, spec: str, sentence: str, run: Any, *needs: Need) -> Check:
    return Check(check_id, Section.VERSIONS, spec, Level.MUST, sentence, run, needs)


CHECKS: Final = (
    _check(
        "version-declared",
        "8.3.1",
        "The card's interface is what it says: its binding, at its URL",
        declares_what_it_speaks,
    ),
    _check("version-current", "3.6.2", "A2A-Version: 1.0 is spoken", speaks_one),
    _check("version-patch", "3.6", "Patch numbers are passed over", passes_patches_over),
    _check(
        "version-unknown",
        "3.6.2",
        "A version that is not served is VersionNotSupported",
        refuses_strange_versions,
    ),
    _check(
        "version-everywhere",
        "3.6.2",
        "A version that is not served is VersionNotSupported in each operation, streams too",
        refuses_them_everywhere,
    ),
    _check(
        "version-none",
        "3.6.2",
        "No version, or an empty one, means 0.3: VersionNotSupported",
        takes_none_for_the_older,
        Need.NO_OLDER_VERSION,
    ),
    _check(
        "version-older",
        "3.6.2",
        "No version means 0.3, whose methods have other names",
        speaks_the_older_without,
        Need.OLDER_VERSION,
    ),
    _check("version-query", "3.6.1", "The version may come as a query parameter", takes_it_from_the_query),
    _check(
        "version-any-case",
        "9.2, 11.2",
        "The names of service parameters are case-insensitive",
        takes_any_case,
    ),
)
