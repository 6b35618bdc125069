"""Handles: sealed references with which a caller returns to a task, so that the bridge keeps no state itself.

A handle is encrypted and authenticated, bound to a purpose and a principal, and contains its expiry. Every bad handle
gets the same answer, whether it is forged, expired, sealed with an old key, or belongs to another principal or purpose.
Handles are short, because language models copy them: UUIDs and traces are packed, and an agent is a mark of 8 bytes.

Layout: format and key id in the clear (3 bytes), a random nonce (12), then encrypted with AES-GCM the expiry (4), the
agent (8) and the ids. The text is URL-safe base64 without padding. Each purpose has its own key, derived from the
secret by HKDF. Time is an argument; only `key_in` uses the disk.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import secrets
import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from bridge.errors import CallerError, PeerError, UsageError
from bridge.local.private_files import may_others_use, read_secret
from bridge.text.jsonvalues import JsonObject

MAX_HANDLE_CHARACTERS: Final = 512
"""The most characters of a handle. Some callers use handles as A2A ids, which have this bound."""
MIN_KEY_BYTES: Final = 32
"""The shortest secret, so that it cannot be guessed: as long as the output of `openssl rand -hex 16`."""

KEY_FILE: Final = "handle.key"
"""The default name of a key file."""

_FORMAT: Final = b"\x01"
_KEY_ID_BYTES: Final = 2
_NONCE_BYTES: Final = 12
_MARK_BYTES: Final = 8
_HEAD: Final = struct.Struct(f">I{_MARK_BYTES}s")
_LENGTH: Final = struct.Struct(">H")
_UUID: Final = b"\xff"
_UUID_HEX: Final = b"\xfe"
_TRACE: Final = b"\xfd"
"""The bytes that mark a packed id. Any other id begins with its length in two bytes, which is below 0xFD00."""
_TRACE_BYTES: Final = 25
_TRACEPARENT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_BASE64: Final = re.compile(r"[A-Za-z0-9_-]+")


class HandlePurpose(Enum):
    """The purpose of a handle. A handle opens only for its own purpose."""

    REQUEST_STATE = "requestState"
    """The `requestState` (MCP 2026-07-28), bound to its request."""
    TASK_ID = "task id"
    """The id of an MCP task."""
    FOLLOW_UP = "follow-up"
    """The argument of the follow-up tools."""
    CONTEXT = "context"
    """The argument that continues a conversation."""
    SESSION = "session"
    """The id of an MCP session (2025-11-25) that every replica can serve."""
    WEBHOOK = "webhook"
    """The token that an agent sends with notifications about a task."""


LIFETIME_SECONDS: Final[Mapping[HandlePurpose, int]] = {
    HandlePurpose.REQUEST_STATE: 3600,
    HandlePurpose.TASK_ID: 86_400,
    HandlePurpose.FOLLOW_UP: 7 * 86_400,
    HandlePurpose.CONTEXT: 30 * 86_400,
    HandlePurpose.SESSION: 30 * 86_400,
    HandlePurpose.WEBHOOK: 7 * 86_400,
}
"""The default lifetimes of handles: people take minutes to answer, and days to come back."""


class HandleError(CallerError):
    """A handle cannot be opened. The message never says why, so that guessing handles reveals nothing."""

    def __init__(self) -> None:
        super().__init__(
            "This handle does not work: it has expired, it is not complete, or it belongs to somebody else."
            " Copy it as it was given, or start again without it"
        )


class SealedRecordError(Exception):
    """A sealed record cannot be opened: it is foreign, damaged, or sealed with an old key."""


class HandleTooLongError(PeerError):
    """The ids of an agent are too long to be sealed into a handle."""


@dataclass(frozen=True, slots=True)
class Handle:
    """The contents of a handle."""

    agent: str
    """The agent's mark, as `agent_mark` makes it."""
    ids: tuple[str, ...]
    expires_seconds: int
    """When the handle expires, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class HandleBinding:
    """The values that a handle is bound to. Opening the handle requires the same values."""

    purpose: HandlePurpose
    principal: str
    request: bytes = b""
    """The digest of the request that the handle belongs to; empty if there is none."""


def agent_mark(name: str) -> str:
    """The mark of an agent in handles: 16 hexadecimal digits of a hash of its name."""
    return hashlib.sha256(name.encode()).hexdigest()[: 2 * _MARK_BYTES]


def request_digest(tool: str, arguments: JsonObject) -> bytes:
    """The digest of a call, independent of the order of its JSON keys."""
    return hashlib.sha256(json.dumps([tool, arguments], sort_keys=True).encode()).digest()


class Seal:
    """Seals handles with the first key of a ring, and opens them with any key of the ring."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """Derive the ciphers from the secrets.

        Raises:
            UsageError: there is no secret, or a secret is too short.
        """
        _require_keys(keys)
        self._ciphers = {
            purpose: [(_key_id(key), AESGCM(_derived(key, purpose))) for key in keys]
            for purpose in HandlePurpose
        }

    def seal(self, handle: Handle, binding: HandleBinding) -> str:
        """Seal a handle as text.

        Raises:
            HandleTooLongError: the ids do not fit.
        """
        key_id, cipher = self._ciphers[binding.purpose][0]
        head, nonce = _FORMAT + key_id, secrets.token_bytes(_NONCE_BYTES)
        sealed = cipher.encrypt(nonce, _packed(handle), _associated(head, binding))
        text = _text_of(head + nonce + sealed)
        if len(text) > MAX_HANDLE_CHARACTERS:
            raise HandleTooLongError("The agent's ids are too long for a handle to this task")
        return text

    def open(self, text: str, binding: HandleBinding, now_seconds: float) -> Handle:
        """Open a sealed handle.

        Raises:
            HandleError: the text is no handle of this bridge, is bound to other values, or has expired.
        """
        sealed = _bytes_of(text)
        head, rest = sealed[: 1 + _KEY_ID_BYTES], sealed[1 + _KEY_ID_BYTES :]
        for key_id, cipher in self._ciphers[binding.purpose]:
            if head != _FORMAT + key_id:
                continue
            try:
                opened = cipher.decrypt(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], _associated(head, binding))
            except (InvalidTag, ValueError):
                continue
            handle = _unpacked(opened)
            if now_seconds < handle.expires_seconds:
                return handle
        raise HandleError


class RecordSeal:
    """Seals records of any length that the bridge stores. The first key of a ring seals, and any key opens."""

    def __init__(self, keys: Sequence[bytes], kind: str) -> None:
        """`kind` names the kind of record. Each kind has its own keys.

        Raises:
            UsageError: there is no secret, or a secret is too short.
        """
        _require_keys(keys)
        info = f"mcp-a2a record: {kind}".encode()
        self._ciphers = [(_key_id(key), AESGCM(_expanded(key, info))) for key in keys]

    @property
    def key_ids(self) -> Sequence[str]:
        """Ids that distinguish the keys in file names, and reveal nothing about them."""
        return [key_id.hex() for key_id, _ in self._ciphers]

    def seal(self, record: bytes, place: bytes) -> bytes:
        """Seal a record for its place in storage. It cannot be opened at another place."""
        key_id, cipher = self._ciphers[0]
        head, nonce = _FORMAT + key_id, secrets.token_bytes(_NONCE_BYTES)
        return head + nonce + cipher.encrypt(nonce, record, head + place)

    def open(self, sealed: bytes, place: bytes) -> bytes:
        """Open a record that was sealed for a place.

        Raises:
            SealedRecordError: the record cannot be opened.
        """
        head, rest = sealed[: 1 + _KEY_ID_BYTES], sealed[1 + _KEY_ID_BYTES :]
        for key_id, cipher in self._ciphers:
            if head == _FORMAT + key_id:
                with suppress(InvalidTag, ValueError):
                    return cipher.decrypt(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], head + place)
        raise SealedRecordError

    def seal_json(self, value: JsonObject, place: bytes) -> str:
        """Seal an object as a text that a URL, a header or a cookie can carry: URL-safe base64 without padding."""
        return _text_of(self.seal(json.dumps(value).encode(), place))

    def open_json(self, text: str, place: bytes) -> JsonObject:
        """Open the result of `seal_json` for a place. Another base64 spelling of the same bytes is refused, so that
        code can count the uses of a text.

        Raises:
            SealedRecordError: the text cannot be opened.
        """
        try:
            data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except ValueError as exc:
            raise SealedRecordError from exc
        if _text_of(data) != text:
            raise SealedRecordError
        value: JsonObject = json.loads(self.open(data, place))
        return value


def key_in(folder: Path, name: str = KEY_FILE) -> bytes:
    """Read the secret from a file, or create the file on first use. Concurrent processes get the same secret.

    Raises:
        UsageError: the file cannot be created or read, is readable for everyone, or holds no key.
    """
    path = folder / name
    try:
        if not path.exists():
            _make_key(path)
        text, status = read_secret(path)
    except OSError as exc:
        raise UsageError(f"cannot keep the key for handles in {path}: {exc.strerror}") from exc
    if may_others_use(status):
        raise UsageError(
            f"everyone on this machine can read {path}: chmod 600 it, or remove it to get a new one"
        )
    key = text.strip()
    if len(key) < MIN_KEY_BYTES:
        raise UsageError(f"{path} holds no key for handles: remove it to get a new one")
    return key


def keys_in(keys: Iterable[Path | str]) -> list[bytes]:
    """The secrets of a ring. Each is given as a text, or as the path of its file.

    Raises:
        UsageError: a secret cannot be read or created.
    """
    return [key_in(key.parent, key.name) if isinstance(key, Path) else key.encode() for key in keys]


def _require_keys(keys: Sequence[bytes]) -> None:
    if not keys or any(len(key) < MIN_KEY_BYTES for key in keys):
        raise UsageError(f"handles need at least one key, and each key needs at least {MIN_KEY_BYTES} bytes")


def _make_key(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
            file.flush()
            os.fsync(descriptor)
        # A link and no rename: a second process must not replace the key of the first.
        path.hardlink_to(draft)
    except FileExistsError:
        pass
    finally:
        draft.unlink(missing_ok=True)


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"mcp-a2a handle key id" + key).digest()[:_KEY_ID_BYTES]


def _derived(key: bytes, purpose: HandlePurpose) -> bytes:
    return _expanded(key, f"mcp-a2a handle: {purpose.value}".encode())


def derived_key(key: bytes, purpose: str, length: int = 32) -> bytes:
    """A key for another purpose than sealing. It reveals nothing about the secret or its other keys.

    Raises:
        UsageError: the secret is too short.
    """
    _require_keys([key])
    return _expanded(key, f"mcp-a2a key: {purpose}".encode(), length)


def _expanded(key: bytes, info: bytes, length: int = 32) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=None, info=info).derive(key)


def _associated(head: bytes, binding: HandleBinding) -> bytes:
    principal = binding.principal.encode()
    return head + len(principal).to_bytes(4, "big") + principal + binding.request


def _bytes_of(text: str) -> bytes:
    """The bytes of a sealed text; empty if `seal` cannot have written the text."""
    if len(text) > MAX_HANDLE_CHARACTERS or not _BASE64.fullmatch(text) or len(text) % 4 == 1:
        return b""
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return data if _text_of(data) == text else b""


def _text_of(data: bytes) -> str:
    """URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _packed(handle: Handle) -> bytes:
    head = _HEAD.pack(handle.expires_seconds, bytes.fromhex(handle.agent))
    return head + b"".join(_packed_id(task_id) for task_id in handle.ids)


def _packed_id(text: str) -> bytes:
    try:
        uuid = UUID(text)
    except ValueError:
        uuid = None
    if uuid is not None and text == str(uuid):
        return _UUID + uuid.bytes
    if uuid is not None and text == uuid.hex:
        return _UUID_HEX + uuid.bytes
    if (trace := _TRACEPARENT.fullmatch(text)) is not None:
        return _TRACE + bytes.fromhex("".join(trace.groups()))
    data = text.encode()
    if len(data) > MAX_HANDLE_CHARACTERS:
        raise HandleTooLongError("The agent's ids are too long for a handle to this task")
    return _LENGTH.pack(len(data)) + data


def _unpacked(data: bytes) -> Handle:
    """The reverse of `_packed`, for authenticated bytes."""
    expires, mark = _HEAD.unpack_from(data)
    ids, place = [], _HEAD.size
    while place < len(data):
        kind = data[place : place + 1]
        if kind in (_UUID, _UUID_HEX):
            uuid = UUID(bytes=data[place + 1 : place + 17])
            ids.append(str(uuid) if kind == _UUID else uuid.hex)
            place += 17
        elif kind == _TRACE:
            packed = data[place + 1 : place + 1 + _TRACE_BYTES].hex()
            ids.append(f"00-{packed[:32]}-{packed[32:48]}-{packed[48:]}")
            place += 1 + _TRACE_BYTES
        else:
            start = place + _LENGTH.size
            (length,) = _LENGTH.unpack_from(data, place)
            ids.append(data[start : start + length].decode())
            place = start + length
    return Handle(mark.hex(), tuple(ids), expires)
