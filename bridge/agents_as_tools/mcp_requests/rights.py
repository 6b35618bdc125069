"""Which resources, templates and prompts of agents a principal may use: all, unless its skills are limited. Pure."""

from __future__ import annotations

from bridge.identity.callers.principals import Principal


def may_read(principal: Principal, uri: str) -> bool:  # noqa: ARG001 - any
    """Whether a principal may use a resource, by the URI that hosts see."""
    return _is_unlimited(principal)


def may_expand(principal: Principal, template: str) -> bool:  # noqa: ARG001 - any
    """Whether a principal may use some resource of a template."""
    return _is_unlimited(principal)


def may_get(principal: Principal, name: str) -> bool:  # noqa: ARG001 - any
    """Whether a principal may use a prompt, by the name that hosts see."""
    return _is_unlimited(principal)


def _is_unlimited(principal: Principal) -> bool:
    return principal.skills == ("*",) and not principal.scopes
