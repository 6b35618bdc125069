"""The supported versions of A2A. No module outside this package compares versions or imports a dialect.

Spec: A2A 1.0 section 3.6. A version is Major.Minor. A patch number is ignored. An empty version means 0.3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from bridge.a2a.model.errors import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    VERSION_NOT_SUPPORTED,
    A2AError,
)
from bridge.a2a.model.objects import GRPC, HTTP_JSON, JSONRPC, AgentCard
from bridge.a2a.model.operations import AnyOperation
from bridge.a2a.wire import older_card
from bridge.a2a.wire.choices import DialectChoice
from bridge.a2a.wire.dialect import Dialect, ValueDialect
from bridge.a2a.wire.hermes import Hermes, HermesCallingBack
from bridge.a2a.wire.rest import OLDER_CARD_PATH
from bridge.a2a.wire.v0_1 import V0_1
from bridge.a2a.wire.v0_3 import V0_3
from bridge.a2a.wire.v0_3_proto import V0_3Proto
from bridge.a2a.wire.v1_0 import V1_0
from bridge.errors import echoed
from bridge.text.jsonvalues import JsonObject

HEADER: Final = "A2A-Version"
_ASSUMED: Final = "0.3"
_FIRST: Final = "0.1"
_ASSUMED_ELSE: Final = {JSONRPC: _FIRST, HTTP_JSON: "hermes"}
"""The version of a request that names no version, if 0.3 lacks its method or path, or if a client has named its task.
Clients of these versions never name the version."""
_VERSION: Final = re.compile(r"(\d+\.\d+)(\.\d+)?")
_TOLD: Final[Mapping[int, str]] = {
    INVALID_PARAMS.jsonrpc_code: _ASSUMED,
    **dict.fromkeys((METHOD_NOT_FOUND.jsonrpc_code, INVALID_REQUEST.jsonrpc_code), _FIRST),
    **dict.fromkeys((400, 404, 405), _FIRST),
}
"""The version of an agent, by its refusal of a 0.3 message without parameters: by the error code, or else by the HTTP
status. An agent of 0.3 knows the method and reports the missing parameters. An agent of the first generation does not
know the method, and may not even parse the request."""


class Versions:
    """The supported dialects. The preferred dialect is first."""

    def __init__(
        self, dialects: Sequence[Dialect], *, merges_cards: bool = True, is_told: bool = False
    ) -> None:
        """`merges_cards` adds the fields of every version to a card. With `is_told`, the bridge calls an agent in these
        dialects, whatever its card says."""
        self.current = dialects[0]
        """The dialect for answers to requests without a valid version, such as an error about versions."""
        self.is_told = is_told
        self._merges_cards = merges_cards
        self._dialects = tuple(dialects)
        self._spoken = {
            (dialect.version, binding): dialect for dialect in dialects for binding in dialect.bindings
        }

    @property
    def names(self) -> tuple[str, ...]:
        """The versions as Major.Minor. The preferred version is first."""
        return tuple(dict.fromkeys(dialect.version for dialect in self._dialects))

    # For a server

    @property
    def serves_older_card(self) -> bool:
        """Whether the card is also served at the path that clients before 0.3 use."""
        return len(self.names) > 1 and (
            self._merges_cards or any(dialect.is_added for dialect in self._dialects)
        )

    @property
    def extensions_headers(self) -> tuple[str, ...]:
        """The headers in which clients activate extensions."""
        return tuple(dict.fromkeys(dialect.extensions_header for dialect in self._dialects))

    def served(self, *, merges_cards: bool, hermes: bool, push: bool = False) -> Versions:
        """The dialects of a server. `merges_cards` adds the fields of every version to its card; `hermes` adds that
        dialect, which no header declares. `push` says that push notifications are sent."""
        added = (HermesCallingBack() if push else _HERMES,) if hermes else ()
        return Versions((*self._dialects, *added), merges_cards=merges_cards)

    def card(self, card: AgentCard) -> AgentCard:
        """The card to serve, for a card of the current version."""
        for dialect in self._dialects:
            if self._merges_cards or dialect.is_added:
                card = dialect.card(card)
        return card

    def find(self, requested: str | None, binding: str) -> Dialect | None:
        """The dialect of a version in a binding; None if it is not supported."""
        version = (requested or "").strip() or _ASSUMED
        match = _VERSION.fullmatch(version)
        return self._spoken.get((match[1] if match else version, binding.upper()))

    def require(self, value: str | None, binding: str) -> Dialect:
        """The dialect that a client asks for by header or query parameter.

        Raises:
            A2AError: VERSION_NOT_SUPPORTED, with the supported versions.
        """
        if (dialect := self.find(value, binding)) is not None:
            return dialect
        requested = (value or "").strip()
        served = ", ".join(dict.fromkeys(version for version, spoken in self._spoken if spoken == binding))
        reason = (
            f"version {requested}"
            if requested
            else f"a request without the header {HEADER} (it means {_ASSUMED})"
        )
        raise A2AError(
            VERSION_NOT_SUPPORTED,
            f"This agent does not speak {reason}. Send {HEADER}: {self.current.version}; served: {served}",
            metadata={"requested": requested or _ASSUMED, "supported": served},
        )

    def of_service(self, own: str, requested: str | None) -> ValueDialect:
        """The dialect of a gRPC service of version `own`, whose client requests a version by metadata, if it names one.

        Raises:
            A2AError: VERSION_NOT_SUPPORTED, the client requests another version than that of the service.
        """
        dialect = self._spoken[own, GRPC]
        if (requested or "").strip() and self.require(requested, GRPC) is not dialect:
            words = f"The gRPC service that was called is of A2A {own}: send {HEADER}: {own}"
            raise A2AError(
                VERSION_NOT_SUPPORTED, words, metadata={"requested": str(requested), "supported": own}
            )
        assert isinstance(dialect, ValueDialect)
        return dialect

    def called(self, version: str | None, method: str) -> tuple[Dialect, AnyOperation]:
        """The dialect and the operation of a JSON-RPC call.

        Raises:
            A2AError: VERSION_NOT_SUPPORTED; or METHOD_NOT_FOUND, with the version that has the method, if any.
        """
        dialect = self.require(version, JSONRPC)
        if (operation := dialect.methods.get(method)) is not None:
            return dialect, operation
        if (naming := self.naming(version, method)) is not None:
            return naming
        others = [dialect.version for dialect in self._dialects if method in dialect.methods]
        words = f"There is no method {echoed(method)!r}"
        raise _not_found(words, version, others) if others else A2AError(METHOD_NOT_FOUND, words)

    def naming(self, version: str | None, method: str) -> tuple[Dialect, AnyOperation] | None:
        """The dialect and the operation of a JSON-RPC call in the generation whose clients name tasks; None if the call
        names a version, or the method is unknown there."""
        dialect = self._otherwise(version, JSONRPC)
        operation = dialect.methods.get(method) if dialect else None
        return (dialect, operation) if dialect and operation else None

    def routed(
        self, version: str | None, verb: str, path: str
    ) -> tuple[Dialect, AnyOperation, dict[str, str]]:
        """The dialect, the operation and the path's fields of an HTTP+JSON request.

        Raises:
            A2AError: METHOD_NOT_FOUND, with the version that has the path, if any; METHOD_NOT_ALLOWED; or
                VERSION_NOT_SUPPORTED.
        """
        otherwise = self._otherwise(version, HTTP_JSON)
        if otherwise is not None and otherwise.routes.takes(verb, path):
            return otherwise, *otherwise.routes.match(verb, path)
        try:
            operation, path_params = (self.find(version, HTTP_JSON) or self.current).routes.match(verb, path)
        except A2AError as exc:
            others = [dialect.version for dialect in self._dialects if dialect.routes.has(path)]
            if exc.kind is METHOD_NOT_FOUND and others:
                raise _not_found(str(exc), version, others) from exc
            raise
        return self.require(version, HTTP_JSON), operation, path_params

    def _otherwise(self, version: str | None, binding: str) -> Dialect | None:
        """The other dialect that a request without a version may be in; None if the request names a version."""
        return None if (version or "").strip() else self._spoken.get((_ASSUMED_ELSE[binding], binding))

    # For a client

    def chosen(self, choice: DialectChoice) -> Versions:
        """The dialects for an agent with this setting."""
        if choice == "auto":
            return self
        known = (*self._dialects, _HERMES)
        return Versions([dialect for dialect in known if dialect.version == choice], is_told=True)

    def leaves_open(self, value: JsonValue) -> bool:
        """Whether a card from before 1.0 does not show its version, so that its agent has to be asked."""
        if not isinstance(value, dict):
            return False
        if self.misnames(value):
            return older_card.is_json_rpc(value)
        return older_card.says_no_version(value) and not any(
            dialect.has_card(value) for dialect in self._dialects
        )

    def older_event(self, event: JsonObject) -> JsonObject:
        """A StreamResponse in the form of 0.3, for the webhook of a 0.3 client."""
        dialect = self._spoken[_ASSUMED, JSONRPC]
        assert isinstance(dialect, V0_3)
        return dialect.event(event, last=False)

    def misnames(self, value: JsonValue) -> bool:
        """Whether a card names a version that contradicts its form, so that either may be right."""
        return isinstance(value, dict) and older_card.misnames_version(value)

    def presumed(self, place: str) -> str | None:
        """The version of an open card at this URL, if its agent does not show it; None if it cannot be presumed. Only
        generations before 0.3 have cards at the older path."""
        return _FIRST if place.endswith(OLDER_CARD_PATH) else None

    def card_from(self, value: JsonValue, place: str = "", version: str = "") -> JsonValue:
        """A card of any version, found at a URL, in the form of the current version. A value that is not a card is
        returned unchanged. The version of an open card is `version` (which its agent gave), or else the presumed
        version, or else 0.3."""
        if not isinstance(value, dict):
            return value
        if self.misnames(value):
            # An agent without the methods of 0.3 has the methods of the version on its card.
            newer = version in (_FIRST, self.current.version)
            return older_card.read(value, self.current.version if newer else _ASSUMED)
        if self.leaves_open(value) and version == self.current.version:
            return older_card.read(value, version)
        if self.leaves_open(value):
            return self._spoken[version or self.presumed(place) or _ASSUMED, JSONRPC].card_from(value)
        return next(
            (dialect.card_from(value) for dialect in self._dialects if dialect.has_card(value)), value
        )

    @property
    def asking(self) -> Versions:
        """The dialect of the request that asks an agent for its version, whatever version its card may have."""
        return Versions([self._spoken[_ASSUMED, JSONRPC]], is_told=True)

    @property
    def tellable(self) -> tuple[str, ...]:
        """The versions before 1.0 that `told_by` can find out."""
        return tuple(dict.fromkeys(_TOLD.values()))

    def told_by(self, status: int, answer: JsonValue) -> str | None:
        """The version of an agent, by the HTTP status and the JSON of its answer to a 0.3 message without parameters;
        None if they do not show it."""
        error = answer.get("error") if isinstance(answer, dict) else None
        code = error.get("code") if isinstance(error, dict) else None
        if isinstance(error, dict) and _misses_message(error.get("data")):
            return _ASSUMED
        if code == VERSION_NOT_SUPPORTED.jsonrpc_code:
            return self.current.version  # this error exists only since 1.0
        return _TOLD.get(code if isinstance(code, int) else status)


def _misses_message(data: JsonValue) -> bool:
    """Whether the data of an error says that the parameters of a known method lack the message. a2a-sdk 0.2.5 writes
    such data with the code -32600."""
    places = (
        [detail.get("loc") for detail in data if isinstance(detail, dict)] if isinstance(data, list) else []
    )
    return any(isinstance(place, list) and place[-2:] == ["params", "message"] for place in places)


def _not_found(words: str, requested: str | None, others: Sequence[str]) -> A2AError:
    """METHOD_NOT_FOUND for a method or path that only other versions have."""
    version = (requested or "").strip()
    here = f" in A2A {version}" if version else f" without the header {HEADER}, which means A2A {_ASSUMED}"
    return A2AError(METHOD_NOT_FOUND, f"{words}{here}: send {HEADER}: {others[0]}")


_HERMES: Final = Hermes()
"""The dialect that is spoken only if the configuration says so."""

VERSIONS: Final = Versions((V1_0(), V0_3(), V0_3Proto(), V0_1()))
"""The dialects that this bridge speaks, as a server and as a client."""
