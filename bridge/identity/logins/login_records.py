"""Logins as encrypted bytes: sealed with the keys of the bridge, and bound to their row or file.

So a row that was copied over another row cannot be opened there. The id of a login reveals nothing about it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields

from bridge.errors import UsageError
from bridge.identity.logins.kept_logins import KeptLogins, Login, LoginKey
from bridge.seal import RecordSeal, SealedRecordError
from bridge.text.jsonvalues import JsonObject


def login_id(key: LoginKey) -> str:
    """The id of a login: the name of its row, and the start of its file name."""
    return hashlib.sha256(json.dumps([key.peer, key.principal]).encode()).hexdigest()[:32]


class LoginRecords:
    """Converts logins to sealed bytes, and back."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """The first key seals, and every key opens.

        Raises:
            UsageError: there is no key, or a key is too short.
        """
        self._seal = RecordSeal(keys, "login")

    @property
    def key_ids(self) -> Sequence[str]:
        """The ids of the keys for names; the first key seals."""
        return self._seal.key_ids

    def sealed(self, name: str, key: LoginKey, login: Login) -> bytes:
        """A login as bytes, for the row or the file with this name."""
        text = json.dumps({"peer": key.peer, "principal": key.principal, "login": _said(login)})
        return self._seal.seal(text.encode(), name.encode())

    def opened(self, name: str, data: bytes) -> tuple[LoginKey, Login]:
        """The login in the bytes with this name.

        Raises:
            UsageError: the key that sealed the bytes is missing, or the bytes are damaged.
        """
        try:
            record = json.loads(self._seal.open(data, name.encode()))
            members = record["login"]
            scopes = {key: tuple(members.get(key, ())) for key in ("scopes", "wanted_scopes")}
            return LoginKey(record["peer"], record["principal"]), Login(**{**members, **scopes})
        except (SealedRecordError, ValueError, TypeError, KeyError) as exc:
            raise UsageError(
                f"the login {name} was sealed with a key that is missing here, by a newer release, or is damaged:"
                " put the key back into `keys`, or log in again"
            ) from exc

    def all_of(self, rows: Iterable[tuple[str, bytes]]) -> KeptLogins:
        """The logins in rows; each row has a name and bytes."""
        opened, sealed_otherwise = [], 0
        for name, data in rows:
            try:
                opened.append(self.opened(name, data))
            except UsageError:
                sealed_otherwise += 1
        opened.sort(key=lambda record: (record[0].peer, record[0].principal))
        return KeptLogins(opened, sealed_otherwise)


def _said(login: Login) -> JsonObject:
    """The fields of a login without default values: an older release can open a login if it knows all the fields in
    it."""
    defaults = {field.name: field.default for field in fields(Login)}
    return {name: value for name, value in asdict(login).items() if value != defaults[name]}
