"""Makes and opens the addresses at which the bridge serves linked resources. Pure, but for the random nonce.

An address holds, sealed, all that the bridge needs to read the resource: its URI, the principal that got the link, and
the skill that gave the link. So the bridge stores nothing, and each replica with the same keys opens the address.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Final

from bridge.seal import HandleError, RecordSeal, SealedRecordError
from bridge.text.jsonvalues import JsonObject

PATH: Final = "/links/"
"""The path of a link begins with this text, after the path of its agent."""
LIFETIME_SECONDS: Final = 24 * 3600
"""How long a link works. A person opens a result on the same day; a person who finds an old link gets nothing."""
_URI_CHARACTERS: Final = 2000
"""The longest URI in a link. An address of twice this length passes every proxy."""
_NAME_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True)
class LinkOrigin:
    """Who got a link, and from which call."""

    principal: str
    context_id: str
    source_key: str
    skill_id: str


@dataclass(frozen=True, slots=True)
class ServedLink:
    """What an address holds."""

    origin: LinkOrigin
    uri: str
    name: str
    expires_seconds: int


class ServedLinks:
    """The addresses of one agent."""

    def __init__(
        self, face: str, agent_url: str, keys: Sequence[bytes], now_seconds: Callable[[], float] = time.time
    ) -> None:
        """`face` is the agent's name and `agent_url` its address, without a trailing slash."""
        self._place = f"link of {face}".encode()
        self._agent_url = agent_url
        self._seal = RecordSeal(keys, "served links")
        self._now_seconds = now_seconds

    def addresses_for(
        self, principal: str, context_id: str, source_key: str, skill_id: str
    ) -> Callable[[JsonObject], str | None]:
        """Makes the addresses of the links in a result, for the principal that called the skill."""
        return partial(self.address, LinkOrigin(principal, context_id, source_key, skill_id))

    def address(self, origin: LinkOrigin, block: JsonObject) -> str | None:
        """The address that replaces a `resource_link`; None if the URI of the resource is too long."""
        uri, name = str(block.get("uri")), str(block.get("name", ""))[:_NAME_CHARACTERS]
        if len(uri) > _URI_CHARACTERS:
            return None
        expires = int(self._now_seconds()) + LIFETIME_SECONDS
        record: JsonObject = {**asdict(origin), "uri": uri, "name": name, "expires_seconds": expires}
        return f"{self._agent_url}{PATH}{self._seal.seal_json(record, self._place)}"

    def opened(self, text: str) -> ServedLink:
        """The link that the last part of an address holds.

        Raises:
            HandleError: the text is not of this agent, or the link has expired.
        """
        try:
            record = self._seal.open_json(text, self._place)
        except (SealedRecordError, ValueError) as exc:
            raise HandleError from exc
        uri, name, expires = record.pop("uri"), record.pop("name"), record.pop("expires_seconds")
        if not isinstance(expires, int) or self._now_seconds() >= expires:
            raise HandleError
        origin = LinkOrigin(**{key: str(value) for key, value in record.items()})
        return ServedLink(origin, str(uri), str(name), expires)
