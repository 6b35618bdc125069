"""The address of a replica for the other replicas: an HTTP URL, or a unix socket on the same machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import urlsplit

UNIX: Final = "unix:"
"""The prefix of a socket's address, followed by its path."""

MAX_SOCKET_BYTES: Final = 103
"""The longest path of a socket. Linux allows 107 bytes, macOS 103."""


@dataclass(frozen=True, slots=True)
class ReplicaAddress:
    """A parsed address."""

    text: str
    """The address as written: `unix:/PATH`, or the URL to which the path of an endpoint is appended."""
    is_secure: bool
    """Whether it uses TLS."""
    host: str
    """The host, or the path of a socket, which begins with a slash as no host does."""
    port: int | None
    base_path: str
    """The prefix of the paths of endpoints, without a trailing slash."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an address.

        Raises:
            ValueError: the text is no address; the message says why.
        """
        if not text.isascii():
            raise ValueError("it has characters that no host name has")
        if text.startswith(UNIX):
            path = text.removeprefix(UNIX)
            if not path.startswith("/") or len(path) > MAX_SOCKET_BYTES or not path.isprintable():
                raise ValueError("it has no absolute path of a socket, or too long a path")
            return cls(text, is_secure=False, host=path, port=None, base_path="")
        place = urlsplit(text)
        if place.scheme not in ("http", "https") or not place.hostname or place.port == 0:
            raise ValueError("it is no HTTP URL")
        if "@" in place.netloc or "?" in text or "#" in text or not text.isprintable() or " " in text:
            raise ValueError("it has a user, a query, a fragment or spaces")
        base_path = place.path.rstrip("/")
        return cls(text, place.scheme == "https", place.hostname, place.port, base_path)

    @property
    def authority(self) -> str:
        """The Host header of a request to this address."""
        if self.host.startswith("/"):
            return "localhost"
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port is None else f"{name}:{self.port}"
