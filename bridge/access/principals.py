"""Whom callers are taken for, and which skills and tools each may use. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final

MayUse = Callable[[str], bool]
"""Whether the skill or tool of this name may be used."""


def may_use_everything(name: str) -> bool:  # noqa: ARG001 - whatever it is
    """What those may use of whom nothing else is said."""
    return True


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls. Tasks and contexts belong to one."""

    name: str
    may_list_all: bool = True
    """False for anonymous callers from elsewhere: a task id is all they have, so they list by context."""
    skills: tuple[str, ...] = ("*",)
    """Globs of the skills and tools that it may use: `create_*` in every face, `devtools/create_*` in the faces whose
    names the part before the first slash matches."""

    def in_face(self, face: str) -> Principal:
        """This principal where it calls that face: `skills` hold there, and are globs of ids alone."""
        found = (_glob_in_face(glob, face) for glob in self.skills)
        return replace(self, skills=tuple(glob for glob in found if glob is not None))

    def may_use(self, skill_id: str) -> bool:
        """Whether a skill may be used. Asked of what `in_face` gave."""
        return "*" in self.skills or any(fnmatchcase(skill_id, glob) for glob in self.skills)


def may_use(principal: Principal, face: str, skill_id: str) -> bool:
    """Whether a principal may use a skill of an agent, or a tool of an MCP server, that is served under this name."""
    return principal.in_face(face).may_use(skill_id)


def _glob_in_face(glob: str, face: str) -> str | None:
    where, slash, what = glob.partition("/")
    if not slash:
        return glob
    return what if fnmatchcase(face, where) else None


LOCAL: Final = Principal("local")
"""Whoever reaches a bridge that listens on loopback and asks for no credentials."""

ANONYMOUS: Final = Principal("anonymous", may_list_all=False)
"""Whoever reaches a bridge that is open to others without credentials."""
