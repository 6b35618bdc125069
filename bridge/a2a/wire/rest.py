"""The HTTP+JSON binding: routes from verbs and paths to operations and back, and the media type of answers. Pure.

The paths and query parameters of a version are in its dialect (`v1_0.py`).

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
from bridge.text.jsonvalues import JsonObject

MEDIA_TYPE: Final = "application/a2a+json"
PLAIN_MEDIA_TYPE: Final = "application/json"

CARD_PATH: Final = "/.well-known/agent-card.json"
"""The path of a card, below the address of its agent (section 8.2)."""
OLDER_CARD_PATH: Final = "/.well-known/agent.json"
"""The path of a card in versions before 0.3."""

_FIELD: Final = re.compile(r"\{(\w+)\}")
_WEIGHT: Final = re.compile(r"0(\.\d{0,3})?|1(\.0{0,3})?")
_BOOLEANS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Route:
    """One path with its verbs and its operation. A client uses the first verb."""

    verbs: tuple[str, ...]
    template: str
    pattern: re.Pattern[str]
    operation: AnyOperation

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of the request that are in the path."""
        return tuple(self.pattern.groupindex)


def route(verbs: str, template: str, operation: AnyOperation) -> Route:
    """A route. `verbs` are separated by spaces; `template` is the path, with the names of fields in braces."""
    pattern = _FIELD.sub(r"(?P<\1>[^/]+?)", template)
    return Route(tuple(verbs.split()), template, re.compile(pattern), operation)


@dataclass(frozen=True, slots=True)
class RestRequest:
    """An HTTP request of an operation. It is the reverse of `OperationRoutes.match` and
    `OperationRoutes.params_from`."""

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
    """The query parameters of each operation that are fields of its request."""

    def has(self, path: str) -> bool:
        """Whether a path has a route, for any verb."""
        return any(route.pattern.fullmatch(path) for route in self.routes)

    def takes(self, verb: str, path: str) -> bool:
        """Whether a path has a route for a verb."""
        return any(verb in route.verbs and route.pattern.fullmatch(path) for route in self.routes)

    def serves(self, operation: AnyOperation) -> bool:
        """Whether an operation has a route."""
        return any(route.operation is operation for route in self.routes)

    def match(self, verb: str, path: str) -> tuple[AnyOperation, dict[str, str]]:
        """The operation for a verb and a path, and the fields in the path.

        Raises:
            A2AError: METHOD_NOT_FOUND (404) for an unknown path, METHOD_NOT_ALLOWED (405) for another verb.
        """
        allowed: list[str] = []
        for route in self.routes:
            path_match = route.pattern.fullmatch(path)
            if path_match is None:
                continue
            if verb in route.verbs:
                return route.operation, path_match.groupdict()
            allowed += route.verbs
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
        """The parameters of a request. A field in the path replaces the same field in the query, which replaces the
        same field in the body.

        Raises:
            A2AError: INVALID_PARAMS, the body is not an object, or a boolean is neither true nor false.
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
        """The HTTP request of an operation; None if the operation has no route.

        Fields that are not in the path go into the body of a POST, or into the query of another verb. A tenant comes
        first in the path, as in the additional bindings of the proto, and is also in a body.
        """
        route = next((route for route in self.routes if route.operation is operation), None)
        if route is None:
            return None
        verb, rest = route.verbs[0], dict(params)
        quoted = {name: quote(str(rest.pop(name)), safe="") for name in route.fields}
        path = route.template.format_map(quoted)
        if tenant := rest.get("tenant"):
            path = f"/{quote(str(tenant), safe='')}{path}"
        if verb == "POST":
            return RestRequest(verb, path, {}, rest)
        rest.pop("tenant", None)
        return RestRequest(verb, path, {name: _query_value(value) for name, value in rest.items()}, None)


def _query_value(value: JsonValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def media_type_for(accept: str, offered: Sequence[str] = (MEDIA_TYPE, PLAIN_MEDIA_TYPE)) -> str:
    """The media type of an answer, chosen from `offered` by the `Accept` header.

    The first offered type is used unless the header ranks another type higher: by weight, and for equal weights by the
    more specific range. So `application/json, */*` selects the plain type. A header that accepts none of them is
    ignored.

    Spec: A2A 1.0 section 11.1; RFC 9110 section 12.5.1.
    """
    ranges = _media_ranges(accept)
    return max(offered, key=lambda media_type: _rank(media_type, ranges))


def _media_ranges(accept: str) -> dict[str, float]:
    """The media ranges of a header with their weights. A range with an invalid weight is left out."""
    ranges: dict[str, float] = {}
    for member in accept.lower().split(","):
        media_range, *parameters = (piece.strip() for piece in member.split(";"))
        weights = [piece[2:] for piece in parameters if piece.startswith("q=")] or ["1"]
        if _WEIGHT.fullmatch(weights[0]):
            ranges[media_range] = float(weights[0])
    return ranges


def _rank(media_type: str, ranges: dict[str, float]) -> tuple[float, int]:
    """The weight of a media type, and how specific the range is that gives it: the most specific range decides."""
    wildcards = ("*/*", f"{media_type.partition('/')[0]}/*")
    for exactness, media_range in reversed(tuple(enumerate((*wildcards, media_type)))):
        if (weight := ranges.get(media_range)) is not None:
            return weight, exactness if weight else -1
    return 0.0, 0
