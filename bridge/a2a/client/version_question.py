"""The question for the version of A2A that an agent speaks, for agents whose cards do not say it.

The request is SendMessage in the format of one version, without a message. So the agent has nothing to do, and its
error shows its version. The question is asked when a card is read, never within a call. The rules for every request
hold: it goes only to an allowed address, with only the credentials that the agent may get.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

import anyio
import httpx2
from pydantic import JsonValue

from bridge.a2a.client.agent_card import AskVersion, FoundCard, UnknownVersionError
from bridge.a2a.client.agent_client import ClientOptions, http_transports
from bridge.a2a.client.http import json_from, redacted_url
from bridge.a2a.model.operations import SEND_MESSAGE
from bridge.a2a.wire.versions import VERSIONS
from bridge.errors import PeerError
from bridge.text.jsonvalues import shortened_json

_ANSWER_SECONDS: Final = 10.0
"""The longest time for an answer to the question. It is part of reading a card, which may take 30 s."""


def version_question(http: httpx2.AsyncClient, options: ClientOptions) -> AskVersion | None:
    """The function that asks agents for their version; None if the user configured the version."""
    return None if options.versions.is_told else partial(_version_told, http, options)


async def _version_told(http: httpx2.AsyncClient, options: ClientOptions, read_card: FoundCard) -> str:
    """The version that the agent's answer shows.

    Raises:
        UnknownVersionError: the answer shows no version. The message quotes it and says how to configure the version.
    """
    seconds = min(_ANSWER_SECONDS, options.deadlines.answer_seconds or _ANSWER_SECONDS)
    answered = f"gave no answer within {seconds:g} s"
    with anyio.move_on_after(seconds):
        try:
            [transport, *_] = http_transports(http, read_card, replace(options, versions=VERSIONS.asking))
            status, text = await transport.raw_answer(SEND_MESSAGE, {})
        except PeerError as exc:
            raise _unknown(read_card, options, f"could not be asked for it ({exc})") from exc
        answer: JsonValue = None
        with suppress(PeerError):
            answer = json_from(text, str(transport), options.json_values)
        if (version := VERSIONS.told_by(status, answer)) is not None:
            return version
        content = f": {shortened_json(answer)}" if isinstance(answer, dict) else ""
        answered = f"answered a message without content with HTTP {status}{content}"
    raise _unknown(read_card, options, answered)


def _unknown(read_card: FoundCard, options: ClientOptions, answered: str) -> UnknownVersionError:
    versions = VERSIONS.tellable
    if options.trust.on_command_line:
        hint = f"give {' or '.join(f'--dialect {version}' for version in versions)}"
    else:
        keys = " or ".join(f'`dialect = "{version}"`' for version in versions)
        hint = f"write {keys} into its table [agents.NAME]"
    return UnknownVersionError(
        f"the card at {redacted_url(read_card.url)} does not say which version of A2A its agent speaks, as it should "
        f"(`protocolVersion`), and the agent {answered}. If you know the version, {hint}"
    )
