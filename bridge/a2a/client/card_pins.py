"""The keys that the user has pinned for the card of an agent. Only a bridge with pinned keys imports this module.

The keys come from a file or a URL that the user gave, never from the URL on the card (`jku`). An unknown key may be
new, so the keys are then fetched again, but not too often.

Spec: A2A 1.0 section 8.4.3; RFC 7517.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

import anyio.to_thread

from bridge.a2a.client.agent_card import UnverifiedCardError
from bridge.a2a.wire.canonical_card import CardForm, CardProof
from bridge.a2a.wire.card_signatures import UnverifiedError, verified
from bridge.errors import PeerError, UsageError
from bridge.identity.callers.json_web_tokens import IssuerKey, keys_in
from bridge.identity.callers.key_sets import NoKeysError
from bridge.local.private_files import open_regular
from bridge.text.jsonvalues import JsonObject

FILE_BYTES: Final = 1024 * 1024
"""The bound on a key set in a file. It equals the default bound on a key set from a URL."""
FILE_KEYS: Final = 100
"""The bound on the number of keys in a file. It equals the default bound for a URL."""


class PinnedKeys(Protocol):
    """A source of pinned keys. `KeySource` reads a URL, `KeyFile` a file."""

    async def keys(self) -> Sequence[IssuerKey]:
        """The keys.

        Raises:
            NoKeysError: no keys could be read yet.
        """
        ...

    async def keys_after_unknown(self) -> Sequence[IssuerKey]:
        """The keys, read again because a key was not among them.

        Raises:
            NoKeysError: as above.
        """
        ...


class KeyFile:
    """A key set in a file, which is read again for each card."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> Sequence[IssuerKey]:
        """The keys in the file.

        Raises:
            UsageError: there are none that can be used.
        """
        try:
            text = self._text()
            if len(text) > FILE_BYTES:
                raise UsageError(f"{self._file} is too large: a file of keys has at most {FILE_BYTES} bytes")
            return keys_in(json.loads(text), FILE_KEYS)
        except OSError as exc:
            raise UsageError(f"the keys in {self._file} cannot be read: {exc.strerror}") from exc
        except (ValueError, RecursionError) as exc:
            why = "it is not JSON" if isinstance(exc, json.JSONDecodeError | RecursionError) else str(exc)
            raise UsageError(f"the keys in {self._file} cannot be used: {why}") from exc

    def text_if_any(self) -> bytes:
        """The text of the file; empty if it cannot be read."""
        try:
            return self._text()
        except OSError:
            return b""

    def _text(self) -> bytes:
        with os.fdopen(open_regular(self._file), "rb") as opened:
            return opened.read(FILE_BYTES + 1)

    async def keys(self) -> Sequence[IssuerKey]:
        """The keys in the file now.

        Raises:
            UsageError: there are none that can be used.
        """
        return await anyio.to_thread.run_sync(self.read)

    async def keys_after_unknown(self) -> Sequence[IssuerKey]:
        """The keys in the file now, as for `keys`."""
        return await self.keys()


class CardPins:
    """The pinned keys of one agent, and the required form of its signatures."""

    def __init__(self, keys: PinnedKeys, form: CardForm, place: Callable[[], bytes]) -> None:
        """`place` gives the location or the content of the keys. It is part of `mark`, so a stored proof by other keys
        is not used."""
        self._keys = keys
        self._form = form
        self._place = place

    @property
    def mark(self) -> str:
        """A text that identifies these pins among earlier and later pins of the same agent."""
        return hashlib.sha256(self._form.value.encode() + b"\0" + self._place()).hexdigest()

    async def proof_of(self, card: JsonObject, where: str) -> CardProof:
        """The proof that a pinned key has signed a card. Messages call the card `where`.

        Raises:
            UnverifiedCardError: no pinned key has signed the card.
            PeerError: the keys are not known.
        """
        try:
            try:
                return verified(card, await self._keys.keys(), self._form)
            except UnverifiedError:
                return verified(card, await self._keys.keys_after_unknown(), self._form)
        except UnverifiedError as exc:
            raise UnverifiedCardError(f"the card at {where} {exc}") from exc
        except NoKeysError as exc:
            raise PeerError(
                f"the card at {where} cannot be verified: the keys of its signer are not known yet"
            ) from exc
        except UsageError as exc:
            raise PeerError(f"the card at {where} cannot be verified: {exc}") from exc
