"""Which A2A versions are served. The one gate: nothing else compares versions.

Spec: A2A 1.0 section 3.6. A version is Major.Minor; a patch number is passed over; an empty one means 0.3.
"""

from __future__ import annotations

import re
from typing import Final

from bridge.a2a.model.errors import VERSION_NOT_SUPPORTED, A2AError

CURRENT: Final = "1.0"
SERVED: Final = (CURRENT,)
"""The versions of the wire that this server speaks, the preferred one first."""
HEADER: Final = "A2A-Version"
_ASSUMED: Final = "0.3"
_VERSION: Final = re.compile(r"(\d+\.\d+)(\.\d+)?")


def require_served(asked: str | None) -> str:
    """The served version that a client asks for by header or query parameter.

    Raises:
        A2AError: VERSION_NOT_SUPPORTED, which says what is served.
    """
    said = (asked or "").strip()
    found = _VERSION.fullmatch(said or _ASSUMED)
    if found and found[1] in SERVED:
        return found[1]
    served = ", ".join(SERVED)
    reason = f"version {said}" if said else f"a request without the header {HEADER} (it means {_ASSUMED})"
    raise A2AError(
        VERSION_NOT_SUPPORTED,
        f"This agent does not speak {reason}. Send {HEADER}: {CURRENT}; served: {served}",
        metadata={"requested": said or _ASSUMED, "supported": served},
    )
