"""Divides long lists into pages. A page with several lists shows the beginning of each, with a link to the rest. Pure.

`part` in the query names the list, and `page` is the number of entries before the page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar
from urllib.parse import urlencode

from pydantic import JsonValue

from bridge.http.request_checks import RefusedError
from bridge.text.jsonvalues import JsonObject

PAGE_SIZE: Final = 50
"""Entries on a page with one list."""

FIRST_SIZE: Final = 20
"""Entries of each list on a page with several lists."""

_Entry = TypeVar("_Entry")


@dataclass(frozen=True)
class Paging:
    """The list and the position that a visitor asked for."""

    path: str
    """The path of the page, below the console."""
    part: str = ""
    """The only list on the page; "" shows the beginning of each list."""
    before: int = 0
    """How many entries of the list were on earlier pages."""
    more: Mapping[str, str] = field(default_factory=dict)
    """The other parameters of the query, which links keep."""

    @classmethod
    def asked(cls, path: str, query: Mapping[str, str], *kept: str) -> Paging:
        """The paging of a query. Links keep the fields `kept`.

        Raises:
            RefusedError: 400, there is no such page.
        """
        page = query.get("page", "") or "0"
        if not (page.isascii() and page.isdecimal() and len(page) < _DIGITS):
            raise RefusedError(400, "There is no such page")
        more = {name: query[name] for name in kept if query.get(name)}
        return cls(path, query.get("part", ""), int(page), more)

    def shows(self, part: str) -> bool:
        """Whether the page has this list, or a list below it: `face/hidden` is below `face`."""
        return not self.part or self.part == part or self.part.startswith(f"{part}/")

    def entries(
        self,
        part: str,
        entries: Sequence[_Entry],
        tell: Callable[[_Entry], JsonValue],
        *,
        alone: bool = False,
        size: int = PAGE_SIZE,
    ) -> tuple[list[JsonValue], JsonObject]:
        """The shown entries of a list, and links to the others. `alone` says that the page has no other list."""
        total, is_chosen = len(entries), self.part == part
        is_elsewhere = bool(self.part) and not is_chosen
        size = 0 if is_elsewhere else size if is_chosen or alone else min(size, FIRST_SIZE)
        before = self.before if is_chosen else 0
        shown = entries[before : before + size]
        goes_on = not is_elsewhere and before + size < total
        return [tell(entry) for entry in shown], {
            "total": total,
            "before": before,
            "first": self._link(part, 0) if before else None,
            "next": self._link(part, before + size) if goes_on else None,
        }

    def _link(self, part: str, before: int) -> str:
        page = {"page": str(before)} if before else {}
        return f"{self.path}?{urlencode({**self.more, 'part': part, **page})}"


_DIGITS: Final = 10
"""`page` must have fewer digits than this."""
