"""Handles: what a caller needs to come back, sealed for it, so that the bridge keeps no state of its own.

A handle is sealed and authenticated, bound to one purpose and one principal, and holds its own expiry. Whatever
is wrong with one (forged, foreign, expired, for another purpose, by a key that is gone), the answer is the same.
It is short, since language models copy it: UUIDs are packed, and an agent is a mark of 8 bytes.

What is sealed: format and key id in the clear (3 bytes), a random nonce (12), then under AES-GCM the expiry (4),
the agent (8) and the ids; the text is URL-safe base64 without padding. Each purpose has its own key, derived
from the secret by HKDF. Time comes in as an argument; only `key_in` touches a disk.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import secrets
import struct
from collections.abc import Mapping, Sequence
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
from bridge.jsonvalues import JsonObject

MAX_HANDLE_CHARACTERS: Final = 512
"""How long a handle may be: an A2A id, which some callers make of it, is no longer."""
MIN_KEY_BYTES: Final = 32
"""How long a secret must be, so that nobody can try them all: what `openssl rand -hex 16` prints, at least."""

_FORMAT: Final = b"\x01"
_KEY_ID_BYTES: Final = 2
_NONCE_BYTES: Final = 12
_MARK_BYTES: Final = 8
_HEAD: Final = struct.Struct(f">I{_MARK_BYTES}s")
_LENGTH: Final = struct.Struct(">H")
_UUID: Final = b"\xff"
_UUID_HEX: Final = b"\xfe"
"""Stand before an id that is packed; before any other stand two bytes with its length, which is below 0xFE00."""
_BASE64: Final = re.compile(r"[A-Za-z0-9_-]+")


class HandlePurpose(Enum):
    """What a handle is for; one for another purpose does not open."""

    REQUEST_STATE = "requestState"
    """The `requestState` of a round (MCP 2026-07-28), bound to its request."""
    TASK_ID = "task id"
    """The id of an MCP task."""
    FOLLOW_UP = "follow-up"
    """The argument of the follow-up tools."""
    CONTEXT = "context"
    """The argument that continues a conversation."""


LIFETIME_SECONDS: Final[Mapping[HandlePurpose, int]] = {
    HandlePurpose.REQUEST_STATE: 3600,
    HandlePurpose.TASK_ID: 86_400,
    HandlePurpose.FOLLOW_UP: 7 * 86_400,
    HandlePurpose.CONTEXT: 30 * 86_400,
}
"""How long handles are good where nothing else is said: people take minutes to answer, and days to come back."""


class HandleError(CallerError):
    """A handle does not open. It never says why: whoever guesses handles learns nothing."""

    def __init__(self) -> None:
        super().__init__(
            "This handle is not valid here: it is unknown or expired, or it belongs to someone else"
        )


class HandleTooLongError(PeerError):
    """The ids of an agent are too long to be sealed into a handle."""


@dataclass(frozen=True, slots=True)
class Handle:
    """What a handle holds."""

    agent: str
    """The agent's mark, as `agent_mark` makes it."""
    ids: tuple[str, ...]
    expires_seconds: int
    """When it is no longer good, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class HandleBinding:
    """What a handle is bound to, and has to be opened with."""

    purpose: HandlePurpose
    principal: str
    request: bytes = b""
    """The digest of the request that it belongs to, if it belongs to one."""


def agent_mark(name: str) -> str:
    """What stands for an agent in handles: 16 hexadecimal digits of a hash."""
    return hashlib.sha256(name.encode()).hexdigest()[: 2 * _MARK_BYTES]


def request_digest(tool: str, arguments: JsonObject) -> bytes:
    """The digest of a call, the same however its JSON is written."""
    return hashlib.sha256(json.dumps([tool, arguments], sort_keys=True).encode()).digest()


class Seal:
    """Seals handles with the first key of a ring, and opens them with any."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """Take the secrets.

        Raises:
            UsageError: there is none, or one is too short.
        """
        if not keys or any(len(key) < MIN_KEY_BYTES for key in keys):
            raise UsageError(
                f"a key for handles has at least {MIN_KEY_BYTES} bytes, and there is at least one"
            )
        self._ciphers = {
            purpose: [(_key_id(key), AESGCM(_derived(key, purpose))) for key in keys]
            for purpose in HandlePurpose
        }

    def seal(self, handle: Handle, binding: HandleBinding) -> str:
        """A handle as text.

        Raises:
            HandleTooLongError: its ids do not fit.
        """
        key_id, cipher = self._ciphers[binding.purpose][0]
        head, nonce = _FORMAT + key_id, secrets.token_bytes(_NONCE_BYTES)
        sealed = cipher.encrypt(nonce, _packed(handle), _associated(head, binding))
        text = base64.urlsafe_b64encode(head + nonce + sealed).rstrip(b"=").decode()
        if len(text) > MAX_HANDLE_CHARACTERS:
            raise HandleTooLongError("The ids that the agent uses are too long for a handle to this task")
        return text

    def open(self, text: str, binding: HandleBinding, now_seconds: float) -> Handle:
        """What a handle holds.

        Raises:
            HandleError: it is not one of ours, not for this purpose, principal and request, or has expired.
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


def key_in(folder: Path, name: str = "handle.key") -> bytes:
    """The secret in a file of a folder, made on first use. Processes that come at the same time get the same.

    Raises:
        UsageError: the file cannot be made or read, is readable for everyone, or holds no key.
    """
    path = folder / name
    try:
        if not path.exists():
            _make_key(path)
        mode, key = path.stat().st_mode, path.read_bytes().strip()
    except OSError as exc:
        raise UsageError(f"cannot keep the key for handles in {path}: {exc.strerror}") from exc
    if os.name == "posix" and mode & 0o007:
        # The group may: volumes of containers are often shared with one.
        raise UsageError(
            f"everyone on this machine can read {path}: chmod 600 it, or remove it to get a new one"
        )
    if len(key) < MIN_KEY_BYTES:
        raise UsageError(f"{path} holds no key for handles: remove it to get a new one")
    return key


def _make_key(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
            file.flush()
            os.fsync(descriptor)
        # Linked, not renamed: whoever comes second must not replace the key of whoever came first.
        path.hardlink_to(draft)
    except FileExistsError:
        pass
    finally:
        draft.unlink(missing_ok=True)


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"mcp-a2a handle key id" + key).digest()[:_KEY_ID_BYTES]


def _derived(key: bytes, purpose: HandlePurpose) -> bytes:
    info = f"mcp-a2a handle: {purpose.value}".encode()
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(key)


def _associated(head: bytes, binding: HandleBinding) -> bytes:
    principal = binding.principal.encode()
    return head + len(principal).to_bytes(4, "big") + principal + binding.request


def _bytes_of(text: str) -> bytes:
    """The bytes of a text; nothing when it is none that `seal` would write."""
    if len(text) > MAX_HANDLE_CHARACTERS or not _BASE64.fullmatch(text) or len(text) % 4 == 1:
        return b""
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    is_ours = base64.urlsafe_b64encode(data).rstrip(b"=").decode() == text
    return data if is_ours else b""


def _packed(handle: Handle) -> bytes:
    head = _HEAD.pack(handle.expires_seconds, bytes.fromhex(handle.agent))
    return head + b"".join(_packed_id(one) for one in handle.ids)


def _packed_id(text: str) -> bytes:
    try:
        uuid = UUID(text)
    except ValueError:
        uuid = None
    if uuid is not None and text == str(uuid):
        return _UUID + uuid.bytes
    if uuid is not None and text == uuid.hex:
        return _UUID_HEX + uuid.bytes
    data = text.encode()
    if len(data) > MAX_HANDLE_CHARACTERS:
        raise HandleTooLongError("The ids that the agent uses are too long for a handle to this task")
    return _LENGTH.pack(len(data)) + data


def _unpacked(data: bytes) -> Handle:
    """The reverse of `_packed`, for what was authenticated."""
    expires, mark = _HEAD.unpack_from(data)
    ids, place = [], _HEAD.size
    while place < len(data):
        kind = data[place : place + 1]
        if kind in (_UUID, _UUID_HEX):
            uuid = UUID(bytes=data[place + 1 : place + 17])
            ids.append(str(uuid) if kind == _UUID else uuid.hex)
            place += 17
        else:
            start = place + _LENGTH.size
            (length,) = _LENGTH.unpack_from(data, place)
            ids.append(data[start : start + length].decode())
            place = start + length
    return Handle(mark.hex(), tuple(ids), expires)
