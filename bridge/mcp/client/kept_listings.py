"""The last listings of tool servers, kept on disk for a start while a server is down.

Such a start shows the same skills as before, and says that they cannot be called. Only listings of the first session
are kept. This session acts for no caller, so tools for a single caller are not in its listing.

A listing is kept by the identity of its server. The identity covers all settings that decide what the server lists,
including secrets, so another login at the same URL is another server. Only a digest of it is stored. A listing above a
bound is not kept.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Final, Protocol

from bridge.errors import UsageError
from bridge.local.private_files import STATE_BYTES, patiently, read_regular, write_privately
from bridge.mcp.client.known_servers import server_id
from bridge.mcp.client.values import Greeting, ToolListing
from bridge.mcp.tools import SchemaBudget, UnservableTool, tools_from

logger = logging.getLogger(__name__)

FOLDER_NAME: Final = "listings"
"""The folder of listings, in the user's state folder."""

LISTING_MOST_BYTES: Final = 2 << 20
"""The largest listing that is kept. Thousands of tools fit, and all listings together stay small beside the tasks."""

LISTINGS_MOST: Final = 100
"""The most listings in the folder. The most recently seen listings stay."""


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """The identity of a tool server."""

    server: str
    """The command or URL as it is shown. Other facts about the server are remembered by it, too."""
    whole: bytes
    """All settings that decide what the server lists, including secrets."""


@dataclass(frozen=True)
class KeptListing:
    """The listing and the description of a server from the last connection."""

    kept: bytes
    schema_values: int
    """The most values in compiled schemas; see `SchemaBudget`."""

    @cached_property
    def listing(self) -> ToolListing:
        """The tools. Their schemas are compiled only when this is first read, since most starts find their servers
        up."""
        members = json.loads(self.kept)
        tools, faulty = tools_from(members["tools"], SchemaBudget(self.schema_values))
        left_out = tuple(UnservableTool(name, reason) for name, reason in members["left_out"])
        listing = ToolListing(tools, left_out + faulty)
        if not (entries := members.get("stand_ins")):
            return listing
        # Imported only by a bridge that presents prompts or resources as tools.
        from bridge.mcp.client.as_tools.listing import stand_ins_from

        return stand_ins_from(listing, entries, self.schema_values)

    @cached_property
    def greeting(self) -> Greeting:
        """The server's description of itself."""
        return Greeting(**json.loads(self.kept)["greeting"])


def kept_listing(text: bytes, schema_values: int) -> KeptListing | None:
    """A listing from its stored bytes; None if another release wrote them in another format."""
    listing = KeptListing(text, schema_values)
    try:
        members = json.loads(text)
        Greeting(**members["greeting"])
        is_read = isinstance(members["tools"], list)
        _ = [(name, reason) for name, reason in members["left_out"]]
    except (ValueError, TypeError, KeyError):
        return None
    return listing if is_read else None


class ListingMemory(Protocol):
    """A store of listings."""

    async def recall(self, identity: ServerIdentity) -> bytes | None:
        """The stored listing of a server; None if there is none, or it cannot be read now."""
        ...

    def remember(self, identity: ServerIdentity, text: bytes) -> None:
        """Store a listing in place of the earlier listing; empty bytes remove it. Failures are ignored."""
        ...


class NoListings:
    """Keeps nothing."""

    async def recall(self, identity: ServerIdentity) -> bytes | None:  # noqa: ARG002 - see `ListingMemory`
        """See `ListingMemory`."""
        return None

    def remember(self, identity: ServerIdentity, text: bytes) -> None:
        """See `ListingMemory`."""


class DescribedServer(Protocol):
    """A tool server as its listing and description show it."""

    @property
    def whole_listing(self) -> ToolListing:
        """The tools that the server lists."""
        ...

    @property
    def greeting(self) -> Greeting | None:
        """The server's own description."""
        ...

    @property
    def down(self) -> str | None:
        """Why the server cannot be called; None while it can."""
        ...


class ListingKeeper:
    """Stores the listings of one server, each once."""

    def __init__(self, memory: ListingMemory, identity: ServerIdentity, name: str) -> None:
        self._memory = memory
        self._identity = identity
        self._name = name
        self._last: ToolListing | None = None
        self._kept = b""

    def store_if_changed(self, server: DescribedServer) -> None:
        """Store the server's listing, if the server is up and the listing has changed."""
        listing, greeting = server.whole_listing, server.greeting
        if server.down is not None or greeting is None or listing is self._last:
            return
        self._last = listing
        text = _as_kept(listing, greeting)
        if text == self._kept:
            return
        self._kept = text
        if len(text) > LISTING_MOST_BYTES:
            logger.warning(
                "the listing of %s has more than %d MiB and is not kept: a start while it is down has no skills",
                self._name,
                LISTING_MOST_BYTES >> 20,
            )
            text = b""  # an earlier listing would have tools that no longer exist
        self._memory.remember(self._identity, text)


def _as_kept(listing: ToolListing, greeting: Greeting) -> bytes:
    members = {
        "greeting": asdict(greeting),
        "tools": [tool.listed for tool in listing.tools],
        "left_out": [[tool.name, tool.reason] for tool in listing.left_out],
    }
    if listing.stand_ins:
        # Imported only by a bridge that presents prompts or resources as tools.
        from bridge.mcp.client.as_tools.listing import kept_entries

        members["stand_ins"] = kept_entries(listing.stand_ins)
    return json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


class ListingFiles:
    """Listings in a folder, with a file for each server. The time of a file is the time of the server's last
    listing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def recall(self, identity: ServerIdentity) -> bytes | None:
        """See `ListingMemory`."""
        file = self._file(identity)
        try:
            if file.stat().st_size > LISTING_MOST_BYTES:
                return None
            return patiently(lambda: read_regular(file, STATE_BYTES))
        except FileNotFoundError:
            return None
        except OSError as exc:
            logger.warning("cannot read the saved tool list of %s: %s", identity.server, exc)
            return None

    def remember(self, identity: ServerIdentity, text: bytes) -> None:
        """See `ListingMemory`."""
        try:
            write_privately(self._file(identity), text)
            self._make_room()
        except (OSError, UsageError) as exc:
            logger.warning("cannot keep what %s lists: %s", identity.server, exc)

    def _file(self, identity: ServerIdentity) -> Path:
        whole = sha256(identity.whole).hexdigest()[:32]
        return self._folder / f"{server_id(identity.server)}-{whole}.json"

    def _make_room(self) -> None:
        for file in _newest_first(self._folder)[LISTINGS_MOST:]:
            file.unlink(missing_ok=True)


class ReadListings(ListingFiles):
    """Listings that are only read."""

    def remember(self, identity: ServerIdentity, text: bytes) -> None:
        """See `ListingMemory`."""


def listings_in(folder: Path, *, keeps: bool) -> ListingMemory:
    """The listings in a folder. `keeps` says whether new listings are stored."""
    return ListingFiles(folder) if keeps else ReadListings(folder)


def forget_listings(folder: Path, is_forgotten: Callable[[str], bool]) -> None:
    """Remove the listings of some servers, by their ids in the file of known servers.

    Raises:
        UsageError: a file cannot be removed.
    """
    for file in _newest_first(folder):
        if is_forgotten(file.name.partition("-")[0]):
            try:
                file.unlink(missing_ok=True)
            except OSError as exc:
                raise UsageError(f"cannot remove {file}: {exc.strerror or exc}") from exc


def _newest_first(folder: Path) -> list[Path]:
    times: list[tuple[float, Path]] = []
    for file in folder.glob("*-*.json"):
        with suppress(OSError):  # another bridge has removed the file
            times.append((file.stat().st_mtime, file))
    return [file for _, file in sorted(times, reverse=True)]
