"""Principals, and which skills and tools each may use."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

from bridge.identity.tokens.caller_token import CallerToken


@dataclass(frozen=True, slots=True)
class OfferedNames:
    """The names of a skill or tool that globs of rights are matched with."""

    name: str
    """The name that callers see."""
    later: tuple[str, ...] = ()
    """The other names that it may get once all peers of its endpoint are known. A right to its name holds only if it
    covers these names, too."""
    qualified: str = ""
    """The name SERVER_TOOL: a right to exactly this name always holds. Empty if this name is ambiguous."""


MayUse = Callable[[OfferedNames], bool]
"""Whether a caller may use the skill or tool with these names."""


def may_use_everything(names: OfferedNames) -> bool:  # noqa: ARG001 - whatever it is
    """Allow every skill and tool: for principals without a rule of their own."""
    return True


ISSUER_MARK: Final = ":"
"""Separates the name of an issuer from the subject of its token. No configured principal has it in its name."""

_NAMED_MOST: Final = 5
"""The most skills that one message names."""

ScopeRule = tuple[str, tuple[str, ...]]
"""A scope of an issuer, and the globs of the skills and tools that it opens."""


class OperatorRole(StrEnum):
    """What an operator may do with the tasks of others, the greater role last. A principal without a role has its own
    tasks only."""

    READ = "read"
    """See all tasks, the configuration, and who may call."""
    ANSWER = "answer"
    """Also answer questions for others, and cancel their tasks."""


@dataclass(frozen=True, slots=True)
class Principal:
    """An identified caller. Each task and context belongs to one principal."""

    name: str
    may_list_all: bool = True
    """False for anonymous callers from other machines, who share one principal: they can list tasks by context only."""
    skills: tuple[str, ...] = ("*",)
    """Globs of the skills and tools that the principal may use. `create_*` holds for every agent and MCP server;
    `devtools/create_*` holds where the name of the agent or server matches `devtools`."""
    scopes: tuple[ScopeRule, ...] = ()
    """The scopes of the principal's issuer, in the order of the file; empty if scopes open nothing."""
    resources: tuple[str, ...] | None = None
    """Globs of the URIs of resources that it may use. None means all resources for a principal that may use every
    skill, else none. `AGENT/GLOB` holds for agents with a matching name: no name holds the colon of a URI."""
    prompts: tuple[str, ...] | None = None
    """Globs of the prompts that it may use, in the form of `skills`. None as for `resources`."""
    expires_at: float | None = field(default=None, compare=False)
    """When its token expires, in seconds since the epoch; None for a secret that does not expire."""
    token: CallerToken | None = field(default=None, compare=False)
    """The access token of the request; None if the request had another credential."""
    operator: OperatorRole | None = None
    """Its role as an operator of the bridge; None for a principal that is no operator."""
    open_tasks: int | None = None
    """The most unfinished tasks that it may have at one agent, and the most simultaneous calls of one MCP server; None
    for the limits of the bridge."""
    group: str = field(default="", compare=False)
    """The group that gives it its skills; empty if it has its own."""
    is_judged: bool = False
    """Whether an MCP server of the bridge, which calls an agent of the bridge for it, has already checked its
    rights."""

    def in_face(self, face: str) -> Principal:
        """This principal at one agent or MCP server: with only the globs for that name, without their part before the
        slash."""
        globs = (*self.skills, *(self.resources or ()), *(self.prompts or ()))
        if not self.scopes and not any("/" in glob for glob in globs):
            return self
        return replace(
            self,
            skills=_globs_in_face(self.skills, face),
            scopes=tuple((scope, _globs_in_face(globs, face)) for scope, globs in self.scopes),
            resources=_globs_in_face(self.resource_globs, face),
            prompts=_globs_in_face(self.prompt_globs, face),
        )

    @property
    def resource_globs(self) -> tuple[str, ...]:
        """The globs of resources that it may use; see `resource_rights`."""
        return self._unless_limited(self.resources)

    @property
    def prompt_globs(self) -> tuple[str, ...]:
        """The globs of prompts that it may use."""
        return self._unless_limited(self.prompts)

    def _unless_limited(self, globs: tuple[str, ...] | None) -> tuple[str, ...]:
        if globs is not None:
            return globs
        return ("*",) if self.skills == ("*",) and not self.scopes else ()

    def may_use_prompt(self, name: str) -> bool:
        """Whether this principal may use a prompt. Call this on a result of `in_face`."""
        return _is_among(name, self.prompt_globs)

    def may_use(self, skill: OfferedNames | str) -> bool:
        """Whether this principal may use a skill. Call this on a result of `in_face`."""
        return _is_among(skill, self.skills)

    def seconds_left(self) -> float:
        """The time until its token expires; infinite for a secret that does not expire."""
        return math.inf if self.expires_at is None else self.expires_at - time.time()

    def may_see(self, skill: OfferedNames | str) -> bool:
        """Whether lists show a skill to this principal: it may use the skill, or a scope of its issuer opens the
        skill."""
        return self.may_use(skill) or self.scope_for(skill) is not None

    def missing_scope(self, skill: OfferedNames | str) -> str | None:
        """The scope that the principal's token lacks for a skill; None if it may use the skill, or no scope opens the
        skill."""
        return None if self.may_use(skill) else self.scope_for(skill)

    def held_scopes(self) -> list[str]:
        """The scopes that the principal seems to have: the scopes of which it may use every skill at this agent or
        server."""
        skills = frozenset(self.skills)
        return [scope for scope, globs in self.scopes if globs and skills.issuperset(globs)]

    def scope_for(self, skill: OfferedNames | str) -> str | None:
        """The first scope of the principal's issuer that opens a skill at this agent or server; None if none does."""
        return next((scope for scope, globs in self.scopes if _is_among(skill, globs)), None)

    def waits_for_names(self, skill: OfferedNames) -> bool:
        """Whether only an unknown peer keeps this principal from a skill: the peer may have a skill with the same
        name."""
        return not self.may_use(skill) and self.may_use(skill.name)


def may_use(principal: Principal, face: str, skill_id: str) -> bool:
    """Whether a principal may use a skill of an agent, or a tool of an MCP server; `face` is the name of either."""
    return principal.in_face(face).may_use(skill_id)


def waiting_rights(
    face: str, offered: Sequence[OfferedNames], unknown: Sequence[str], principals: Iterable[Principal]
) -> Iterator[str]:
    """Messages: which skills each principal may not use only because peers of the agent or MCP server are still
    unknown."""
    for principal in principals if unknown else ():
        here = principal.in_face(face)
        if waiting := [names_offered for names_offered in offered if here.waits_for_names(names_offered)]:
            names = ", ".join(names_offered.name for names_offered in waiting[:_NAMED_MOST])
            by_server = next(
                (names_offered.qualified for names_offered in waiting if names_offered.qualified), ""
            )
            more = f" and {len(waiting) - _NAMED_MOST} more" if len(waiting) > _NAMED_MOST else ""
            how = f"; a right to {by_server} holds at once" if by_server else ""
            yield (
                f"{principal.name} may not use {names}{more} of {face} before all tools of {', '.join(unknown)} are"
                f" known: one of them may have that name{how}"
            )


def _is_among(skill: OfferedNames | str, globs: tuple[str, ...]) -> bool:
    if "*" in globs:
        return True
    if isinstance(skill, str):
        return any(fnmatchcase(skill, glob) for glob in globs)
    if skill.qualified and skill.qualified in globs:
        return True
    return all(any(fnmatchcase(name, glob) for glob in globs) for name in (skill.name, *skill.later))


def _globs_in_face(globs: tuple[str, ...], face: str) -> tuple[str, ...]:
    if not any("/" in glob for glob in globs):
        return globs
    here = (_glob_in_face(glob, face) for glob in globs)
    return tuple(glob for glob in here if glob is not None)


def _glob_in_face(glob: str, face: str) -> str | None:
    where, slash, what = glob.partition("/")
    if not slash or ":" in where:  # a URI has a scheme before its first slash
        return glob
    return what if fnmatchcase(face, where) else None


LOCAL: Final = Principal("local")
"""Every caller of a bridge that listens on loopback and requires no credentials."""

ANONYMOUS: Final = Principal("anonymous", may_list_all=False)
"""Every caller of a bridge that serves other machines and requires no credentials."""


EVERYONE: Final = "*"
"""Stands for all owners when an operator asks for the tasks of everyone."""


@dataclass(frozen=True, slots=True)
class PrincipalNames:
    """A set of principals: some by name, and all principals of some issuers."""

    names: frozenset[str] = frozenset()
    issuers: frozenset[str] = frozenset()
    """The configured names of the issuers."""

    def __contains__(self, name: str) -> bool:
        issuer, mark, _ = name.partition(ISSUER_MARK)
        return name in self.names or (bool(mark) and issuer in self.issuers)

    def __bool__(self) -> bool:
        return bool(self.names or self.issuers)

    def __or__(self, other: PrincipalNames) -> PrincipalNames:
        return PrincipalNames(self.names | other.names, self.issuers | other.issuers)

    def __str__(self) -> str:
        """The names, for the log."""
        return ", ".join(sorted([*self.names, *(f"{issuer}{ISSUER_MARK}*" for issuer in self.issuers)]))
