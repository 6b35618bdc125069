"""Principals, and which skills and tools each may use. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final

MayUse = Callable[[str], bool]
"""Says whether the skill or tool of this name may be used."""


def may_use_everything(name: str) -> bool:  # noqa: ARG001 - whatever it is
    """Allow every skill and tool: for principals without a rule of their own."""
    return True


@dataclass(frozen=True, slots=True)
class Principal:
    """An identified caller. Each task and context belongs to one principal."""

    name: str
    may_list_all: bool = True
    """False for anonymous callers from other machines, who share one principal: they list tasks by context only."""
    skills: tuple[str, ...] = ("*",)
    """Globs of the skills and tools that the principal may use. `create_*` holds in every face; `devtools/create_*`
    holds in the faces whose names match the part before the first slash."""

    def in_face(self, face: str) -> Principal:
        """This principal in one face: `skills` has only the globs for that face, without the part for its name."""
        if not any("/" in glob for glob in self.skills):
            return self
        found = (_glob_in_face(glob, face) for glob in self.skills)
        return replace(self, skills=tuple(glob for glob in found if glob is not None))

    def may_use(self, skill_id: str) -> bool:
        """Whether this principal, as `in_face` returned it, may use a skill."""
        return "*" in self.skills or any(fnmatchcase(skill_id, glob) for glob in self.skills)


def may_use(principal: Principal, face: str, skill_id: str) -> bool:
    """Whether a principal may use a skill of an agent, or a tool of an MCP server; `face` is the name of either."""
    return principal.in_face(face).may_use(skill_id)


def _glob_in_face(glob: str, face: str) -> str | None:
    where, slash, what = glob.partition("/")
    if not slash:
        return glob
    return what if fnmatchcase(face, where) else None


LOCAL: Final = Principal("local")
"""Every caller of a bridge that listens on loopback and asks for no credentials."""

ANONYMOUS: Final = Principal("anonymous", may_list_all=False)
"""Every caller of a bridge that is open to other machines without credentials."""
