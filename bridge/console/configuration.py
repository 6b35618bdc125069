"""The configuration as the bridge has understood it: each value with its source, and how its last reload went."""

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
"""Values on one page: a file of a few servers with all defaults fits."""


class ServedConfiguration(Protocol):
    """What a process knows of the files that it serves."""

    @property
    def values(self) -> Sequence[ShownValue]:
        """The values that are served; a secret is shown as the place that it is read from."""
        ...

    @property
    def read_at(self) -> float | None:
        """When the files were last read again, in seconds since the epoch; None if they have not changed."""
        ...

    @property
    def is_watched(self) -> bool:
        """Whether changes of the files are taken over."""
        ...

    @property
    def fault(self) -> str:
        """Why the files as they are now were refused; "" if they are served."""
        ...


def configuration(known: ServedConfiguration | None, visit: Visit) -> JsonObject:
    """The page, which is for operators. With `all` in the query it tells the defaults, too, and with `table` that table
    alone."""
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
    """The table of a value, and its key there."""
    steps = _STEP.findall(path)
    size = 1 if steps[0] in ("bridge", "import", "push", "audit") else 2
    return ".".join(steps[:size]), ".".join(steps[size:])
