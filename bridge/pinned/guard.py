"""Holds back what is not as in the lock, while a bridge runs.

The guard compares each listing of a server and each card of an agent with the lock. It keeps the differences, for
those who show them, and logs each difference once. What `refuse` holds back is not offered until the lock has it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bridge.notices import DefinitionDiffers, Notify, ignore_notice
from bridge.pinned.definitions import NOUNS, Definitions, ItemKind
from bridge.pinned.differences import Difference, difference_of, differences
from bridge.pinned.lock import PinMode, PinnedPlan
from bridge.text.jsonvalues import JsonObject

logger = logging.getLogger(__name__)

MEND: Final = "`mcp-a2a pin` shows the difference and approves it"
_LOGGED_MOST: Final = 10
"""The most differences of one listing that are logged one by one."""


def held_back_words(difference: Difference) -> str:
    """Why an item is not offered, as the end of a sentence."""
    said = "is not approved yet" if difference.change == "new" else "has changed since it was approved"
    return f"its definition {said}: {MEND}"


@dataclass(frozen=True, slots=True)
class DefinitionState:
    """What is known of one pinned server or agent."""

    title: str
    """Its table in the configuration, such as `tool_servers.github`."""
    mode: PinMode
    is_locked: bool
    """Whether the lock has it."""
    differences: tuple[Difference, ...] = ()

    @property
    def held_back(self) -> tuple[Difference, ...]:
        """The items that are not offered."""
        if self.mode != "refuse":
            return ()
        return tuple(difference for difference in self.differences if difference.change != "gone")

    def words(self) -> str:
        """The state in words; "" if all is as in the lock."""
        if not self.is_locked:
            return f"nothing of it is pinned: {MEND}"
        if not self.differences:
            return ""
        said = "; ".join(difference.words for difference in self.differences[:_LOGGED_MOST])
        more = len(self.differences) - _LOGGED_MOST
        return f"{said}{f'; and {more} more' if more > 0 else ''}: {MEND}"

    def to_object(self) -> JsonObject:
        """The state as JSON."""
        return {
            "pinned": self.mode,
            "locked": self.is_locked,
            "differences": [difference.to_object() for difference in self.differences],
        }


class DefinitionGuard:
    """Compares the servers and agents of a bridge with the lock of its current plan."""

    def __init__(self, notify: Notify = ignore_notice) -> None:
        """`notify` takes a notice of each new difference."""
        self._notify = notify
        self._plan = PinnedPlan()
        self._states: dict[str, DefinitionState] = {}
        self.version = 0
        """Grows with each plan. What was judged by an earlier plan has to be judged again."""

    def update(self, plan: PinnedPlan) -> None:
        """Compare with the lock of another plan from now on."""
        if plan != self._plan:
            self._plan = plan
            self.version += 1
            for title in [title for title in self._states if self.mode_of(title) == "off"]:
                del self._states[title]

    def mode_of(self, title: str) -> PinMode:
        """What happens to items of this server or agent that are not as in the lock."""
        return self._plan.modes.get(title, "off")

    @property
    def states(self) -> Mapping[str, DefinitionState]:
        """The pinned servers and agents that have been compared, by their titles."""
        return self._states

    @property
    def differing(self) -> JsonObject:
        """The servers and agents that are not as in the lock, as JSON, by their titles."""
        return {
            title: state.to_object()
            for title, state in self._states.items()
            if state.differences or not state.is_locked
        }

    def refused(self, title: str, present: Definitions) -> Mapping[tuple[ItemKind, str], Difference]:
        """Compare definitions with the lock, and note the differences. Returns the items that must not be offered."""
        if (mode := self.mode_of(title)) == "off":
            return {}
        locked = self._plan.lock.definitions_of(title)
        of_kinds = differences(locked or {}, present)
        before = self._states.get(title)
        kept = tuple(
            difference
            for difference in (before.differences if before is not None else ())
            if difference.kind not in present
        )
        state = DefinitionState(title, mode, locked is not None, (*kept, *of_kinds))
        self._note(state, before)
        return {(difference.kind, difference.name): difference for difference in state.held_back}

    def refusal(self, title: str, kind: ItemKind, name: str, present: JsonObject | None) -> Difference | None:
        """Compare one item with the lock, and note how it differs. Returns the difference if the item must not be
        offered. None as the definition says that nobody lists the item."""
        if (mode := self.mode_of(title)) == "off":
            return None
        locked = self._plan.lock.definitions_of(title)
        if present is None:
            return Difference(kind, name, "new") if mode == "refuse" else None
        difference = difference_of(kind, name, (locked or {}).get(kind, {}).get(name), present)
        before = self._states.get(title)
        others = tuple(
            other
            for other in (before.differences if before is not None else ())
            if (other.kind, other.name) != (kind, name)
        )
        state = DefinitionState(
            title, mode, locked is not None, (*others, *([difference] if difference is not None else []))
        )
        self._note(state, before)
        return difference if mode == "refuse" else None

    def _note(self, state: DefinitionState, before: DefinitionState | None) -> None:
        if state != before:
            self._states[state.title] = state
            self._log(state, before)

    def _log(self, state: DefinitionState, before: DefinitionState | None) -> None:
        if not state.is_locked:
            if before is None or before.is_locked:
                logger.warning("%s: %s", state.title, state.words())
            return
        known = before.differences if before is not None else ()
        news = [difference for difference in state.differences if difference not in known]
        for difference in news[:_LOGGED_MOST]:
            is_offered = difference not in state.held_back
            end = "is still offered" if is_offered else "is not offered"
            notice = DefinitionDiffers(
                state.title, NOUNS[difference.kind], difference.name, difference.change, is_offered
            )
            self._notify(notice)
            if difference.change == "gone":
                logger.warning("%s: %s", state.title, difference.words)
            else:
                logger.warning("%s: %s, and %s: %s", state.title, difference.words, end, MEND)
        if (more := len(news) - _LOGGED_MOST) > 0:
            logger.warning("%s: %d more differences: %s", state.title, more, MEND)
        if before is not None and known and not state.differences:
            logger.info("%s is as in the lock again", state.title)
