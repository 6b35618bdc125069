"""Which versions of A2A are spoken. The one gate: nothing else compares versions, or knows that a dialect is there.

Spec: A2A 1.0 section 3.6. A version is Major.Minor; a patch number is passed over; an empty one means 0.3.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from bridge.a2a.model.errors import VERSION_NOT_SUPPORTED, A2AError
from bridge.a2a.model.operations import AnyOperation
from bridge.a2a.wire.dialect import Dialect
from bridge.a2a.wire.v1_0 import V1_0

HEADER: Final = "A2A-Version"
_ASSUMED: Final = "0.3"
_VERSION: Final = re.compile(r"(\d+\.\d+)(\.\d+)?")


class Versions:
    """The dialects that are spoken, the preferred one first."""

    def __init__(self, dialects: Sequence[Dialect]) -> None:
        self.current = dialects[0]
        """What is written where nobody has asked for a version, such as an error about versions."""
        self._by_version = {dialect.version: dialect for dialect in dialects}

    @property
    def names(self) -> tuple[str, ...]:
        """As Major.Minor, the preferred one first."""
        return tuple(self._by_version)

    def find(self, said: str | None) -> Dialect | None:
        """The dialect of a version that is spoken, or None."""
        found = _VERSION.fullmatch((said or "").strip() or _ASSUMED)
        return self._by_version.get(found[1]) if found else None

    def require(self, asked: str | None) -> Dialect:
        """The dialect that a client asks for by header or query parameter.

        Raises:
            A2AError: VERSION_NOT_SUPPORTED, which says what is served.
        """
        if (dialect := self.find(asked)) is not None:
            return dialect
        said, served = (asked or "").strip(), ", ".join(self.names)
        reason = f"version {said}" if said else f"a request without the header {HEADER} (it means {_ASSUMED})"
        raise A2AError(
            VERSION_NOT_SUPPORTED,
            f"This agent does not speak {reason}. Send {HEADER}: {self.current.version}; served: {served}",
            metadata={"requested": said or _ASSUMED, "supported": served},
        )

    def routed(self, asked: str | None, verb: str, path: str) -> tuple[Dialect, AnyOperation, dict[str, str]]:
        """The dialect, the operation and what the path says, of a request of HTTP+JSON.

        Raises:
            A2AError: METHOD_NOT_FOUND or METHOD_NOT_ALLOWED, or else VERSION_NOT_SUPPORTED.
        """
        operation, path_params = (self.find(asked) or self.current).routes.match(verb, path)
        return self.require(asked), operation, path_params


VERSIONS: Final = Versions((V1_0(),))
"""What this bridge speaks, as a server and as a client."""
