"""The HTTP+JSON binding: a verb and a path to an operation and its parameters and back, and under which media type a
client is answered. Pure.

What a version's paths and queries are is its dialect's (`v1_0.py`).

Spec: A2A 1.0 section 11.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from pydantic import JsonValue

from bridge.a2a.model.errors import METHOD_NOT_ALLOWED, METHOD_NOT_FOUND, A2AError, Violation, invalid_params
from bridge.a2a.model.operations import AnyOperation
from bridge.errors import echoed
from bridge.jsonvalues import JsonObject

MEDIA_TYPE: Final = "application/a2a+json"
PLAIN_MEDIA_TYPE: Final = "application/json"

CARD_PATH: Final = "/.well-known/agent-card.json"
"""Where a card is, below the address of its agent (section 8.2)."""
OLDER_CARD_PATH: Final = "/.well-known/agent.json"
"""Where generations before 0.3 have it."""

_FIELD: Final = re.compile(r"\{(\w+)\}")
_WEIGHT: Final = re.compile(r"0(\.\d{0,3})?|1(\.0{0,3})?")
_BOOLEANS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Route:
    """One path, one or more verbs, one operation. A client takes the first verb."""

    verbs: tuple[str, ...]
    template: str
    pattern: re.Pattern[str]
    operation: AnyOperation

    @property
    def fields(self) -> tuple[str, ...]:
        """Which fields of the request stand in the path."""
        return tuple(self.pattern.groupindex)


def route(verbs: str, template: str, operation: AnyOperation) -> Route:
    """A route: its verbs, separated by spaces, and its path with the names of fields in braces."""
    pattern = _FIELD.sub(r"(?P<\1>[^/]+?)", template)
    return Route(tuple(verbs.split()), template, re.compile(pattern), operation)


@dataclass(frozen=True, slots=True)
class RestRequest:
    """Where a request goes: what `Routes.match` and `Routes.params_from` turn back."""

    verb: str
    path: str
    """Quoted, beginning with a slash."""
    query: dict[str, str]
    body: JsonObject | None


@dataclass(frozen=True, slots=True)
class OperationRoutes:
    """The paths of one version, in the order in which they are tried."""

    routes: Sequence[Route]
    query: Mapping[AnyOperation, frozenset[str]]
    """Which query parameters are fields of a request."""

    def has(self, path: str) -> bool:
        """Whether there is something at a path, for some verb."""
        return any(one.pattern.fullmatch(path) for one in self.routes)

    def match(self, verb: str, path: str) -> tuple[AnyOperation, dict[str, str]]:
        """The operation behind a verb and a path, and what the path says.

        Raises:
            A2AError: METHOD_NOT_FOUND (404) for an unknown path, METHOD_NOT_ALLOWED (405) for another verb.
        """
        allowed: list[str] = []
        for one in self.routes:
            found = one.pattern.fullmatch(path)
            if found is None:
                continue
            if verb in one.verbs:
                return one.operation, found.groupdict()
            allowed += one.verbs
        if allowed:
            verbs = ", ".join(sorted(set(allowed)))
            raise A2AError(
                METHOD_NOT_ALLOWED, f"{verb} is not allowed here, only {verbs}", headers={"Allow": verbs}
            )
        raise A2AError(METHOD_NOT_FOUND, f"There is nothing at {echoed(path)}")

    def params_from(
        self,
        operation: AnyOperation,
        path_params: dict[str, str],
        query: Iterable[tuple[str, str]],
        body: JsonValue,
    ) -> JsonValue:
        """The request's parameters: the body's fields, then the query's, then the path's, which win.

        Raises:
            A2AError: INVALID_PARAMS for a body that is no object, or a boolean that is neither true nor false.
        """
        if not isinstance(body, dict):
            raise invalid_params(Violation("", "the body must be a JSON object"))
        params: dict[str, JsonValue] = dict(body)
        known = self.query.get(operation, frozenset())
        params.update({name: value for name, value in query if name in known})
        flag = params.get("includeArtifacts")
        if isinstance(flag, str):
            if flag not in _BOOLEANS:
                raise invalid_params(Violation("includeArtifacts", "must be true or false"))
            params["includeArtifacts"] = _BOOLEANS[flag]
        return {**params, **path_params}

    def target_of(self, operation: AnyOperation, params: JsonObject) -> RestRequest | None:
        """The request of an operation: its fields in the path, in the query of a GET or DELETE, or in the body; None
        when there is no path to it.

        A tenant goes first in the path, as the proto's second bindings have it, and stays in a body.
        """
        found = next((one for one in self.routes if one.operation is operation), None)
        if found is None:
            return None
        verb, rest = found.verbs[0], dict(params)
        quoted = {name: quote(str(rest.pop(name)), safe="") for name in found.fields}
        path = found.template.format_map(quoted)
        if tenant := rest.get("tenant"):
            path = f"/{quote(str(tenant), safe='')}{path}"
        if verb == "POST":
            return RestRequest(verb, path, {}, rest)
        rest.pop("tenant", None)
        return RestRequest(verb, path, {name: _query_value(value) for name, value in rest.items()}, None)


def _query_value(value: JsonValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def media_type_for(accept: str, offered: Sequence[str] = (MEDIA_TYPE, PLAIN_MEDIA_TYPE)) -> str:
    """What an answer calls itself, of several names for the same bytes: what an `Accept` header would rather have.

    The first is used unless the header ranks another one above it: by its weight, and among equals by its
    name, so that `application/json, */*` asks for the plain one. A header that takes none is passed over.

    Spec: A2A 1.0 section 11.1; RFC 9110 section 12.5.1.
    """
    ranges = _media_ranges(accept)
    return max(offered, key=lambda media_type: _rank(media_type, ranges))


def _media_ranges(accept: str) -> dict[str, float]:
    """The media ranges of a header, each with its weight; one whose weight is none is left out."""
    ranges: dict[str, float] = {}
    for member in accept.lower().split(","):
        media_range, *parameters = (piece.strip() for piece in member.split(";"))
        weights = [piece[2:] for piece in parameters if piece.startswith("q=")] or ["1"]
        if _WEIGHT.fullmatch(weights[0]):
            ranges[media_range] = float(weights[0])
    return ranges


def _rank(media_type: str, ranges: dict[str, float]) -> tuple[float, int]:
    """How much it is wanted, and by how exact a name: the most exact range decides."""
    wildcards = ("*/*", f"{media_type.partition('/')[0]}/*")
    for exactness, media_range in reversed(tuple(enumerate((*wildcards, media_type)))):
        if (weight := ranges.get(media_range)) is not None:
            return weight, exactness if weight else -1
    return 0.0, 0
