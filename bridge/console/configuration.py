"""The configuration page: each value that the bridge uses with its source, and the result of the last reload."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Protocol

from pydantic import JsonValue

from bridge.a2a.model.objects import timestamp
from bridge.config.text.document import DEFAULT_SOURCE
from bridge.config.toml_text import ShownValue
from bridge.console.console_access import Visit
from bridge.console.paging import Paging
from bridge.text.jsonvalues import JsonObject
from bridge.text.safe_text import with_visible_characters

_STEP: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[^.]+')
"""A step of a path. A name with a dot is quoted."""


_VALUES_SIZE: Final = 200
"""Values on one page: enough for a file of a few servers with all defaults."""


class ServedConfiguration(Protocol):
    """The values and state of the configuration files that a process serves."""

    @property
    def values(self) -> Sequence[ShownValue]:
        """The values in use. A secret is shown as its reference, such as `env:NAME`."""
        ...

    @property
    def read_at(self) -> float | None:
        """When the files were last read again, in seconds since the epoch; None if they have not changed."""
        ...

    @property
    def is_watched(self) -> bool:
        """Whether the bridge applies changes of the files."""
        ...

    @property
    def fault(self) -> str:
        """Why the newest files were refused; "" if they are in use."""
        ...


def configuration(known: ServedConfiguration | None, visit: Visit) -> JsonObject:
    """The page, for operators only. `all` in the query adds the defaults; `table` selects one table."""
    if known is None:
        return {
            "known": False,
            "watched": False,
            "all": False,
            "table": "",
            "sections": [],
            "paging": {},
            "read_at": None,
            "fault": [],
        }
    shows_all, table = visit.query.get("all") == "yes", visit.query.get("table", "")
    values = [
        value
        for value in known.values
        if (shows_all or value.source != DEFAULT_SOURCE) and table in ("", _parted(value.path)[0])
    ]
    paging = Paging.asked("/configuration", visit.query, "all", "table")
    rows, shown = paging.entries("values", values, _row, alone=True, size=_VALUES_SIZE)
    sections: dict[str, list[JsonValue]] = {}
    for row in rows:
        assert isinstance(row, dict)
        sections.setdefault(str(row.pop("section")), []).append(row)
    read_at = known.read_at
    return {
        "known": True,
        "watched": known.is_watched,
        "all": shows_all,
        "table": table,
        "sections": [{"name": name, "values": own} for name, own in sections.items()],
        "paging": shown,
        "read_at": None if read_at is None else timestamp(int(read_at * 1000)),
        "fault": [with_visible_characters(line) for line in known.fault.splitlines()],
    }


def _row(value: ShownValue) -> JsonValue:
    section, key = _parted(value.path)
    return {"section": section, "key": key, "value": value.value, "source": str(value.source)}


def _parted(path: str) -> tuple[str, str]:
    """The table of a value, and its key in that table."""
    steps = _STEP.findall(path)
    size = 1 if steps[0] in ("bridge", "import", "push", "model", "audit") else 2
    return ".".join(steps[:size]), ".".join(steps[size:])
