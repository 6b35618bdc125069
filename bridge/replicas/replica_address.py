"""Where the other replicas of a bridge reach one: over HTTP, or at a socket of the same machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import urlsplit

UNIX: Final = "unix:"
"""What an address of a socket begins with. Its path follows."""

MAX_SOCKET_BYTES: Final = 103
"""The longest path of a socket. Linux takes 107 bytes, macOS 103."""


@dataclass(frozen=True, slots=True)
class ReplicaAddress:
    """An address, taken apart."""

    text: str
    """The address as it is written: `unix:/PATH`, or the URL that the path of a face is put behind."""
    is_secure: bool
    """Whether it is spoken to over TLS."""
    host: str
    """The host; of a socket its path, which no host can be spelled like."""
    port: int | None
    base_path: str
    """What stands before the path of a face. It does not end with a slash."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """The address that a text stands for.

        Raises:
            ValueError: it stands for none.
        """
        if not text.isascii():
            raise ValueError("it holds letters that no host has")
        if text.startswith(UNIX):
            path = text.removeprefix(UNIX)
            if not path.startswith("/") or len(path) > MAX_SOCKET_BYTES or not path.isprintable():
                raise ValueError("no absolute path of a socket")
            return cls(text, is_secure=False, host=path, port=None, base_path="")
        place = urlsplit(text)
        if place.scheme not in ("http", "https") or not place.hostname or place.port == 0:
            raise ValueError("no URL of HTTP")
        if "@" in place.netloc or "?" in text or "#" in text or not text.isprintable() or " " in text:
            raise ValueError("more than a place")
        base_path = place.path.rstrip("/")
        return cls(text, place.scheme == "https", place.hostname, place.port, base_path)

    @property
    def authority(self) -> str:
        """The Host of a request to it."""
        if self.host.startswith("/"):
            return "localhost"
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port is None else f"{name}:{self.port}"
