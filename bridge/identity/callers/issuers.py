"""Issuers of tokens, as the configuration describes them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from bridge.identity.callers.principals import OperatorRole, ScopeRule

OPENID: Final = "/.well-known/openid-configuration"
"""The well-known path of an issuer's metadata (OpenID Connect Discovery)."""


@dataclass(frozen=True, slots=True)
class IssuerPlace:
    """Where the keys of an issuer are found."""

    issuer: str
    """The issuer's identifier. It leads to the metadata (RFC 8414, OpenID Connect Discovery)."""
    jwks_url: str | None = None
    """The URL of the key set; None to read it from the metadata."""
    introspection_url: str | None = None
    """The introspection endpoint; None to read it from the metadata."""
    allow_private: bool = False
    """Whether the metadata of a public issuer may lead to this machine or its network."""


@dataclass(frozen=True, slots=True)
class IntrospectionClient:
    """The bridge as a client of an issuer that introspects tokens."""

    id: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class LoginClient:
    """The bridge as a client of an issuer at which people log in with a browser."""

    id: str
    secret: str = field(default="", repr=False)
    """Empty for a public client."""
    method: Literal["basic", "post"] = "basic"
    """How the client sends its secret."""
    scopes: tuple[str, ...] | None = None
    """The scopes of a token for the console; None for all scopes that the configuration names for the issuer."""
    resource: str | None = None
    """The resource indicator of a token for the console; "" for none, None for the audience of the console."""


@dataclass(frozen=True, slots=True)
class Issuer:
    """An authorization server whose tokens are accepted."""

    name: str
    """Its name in the configuration."""
    place: IssuerPlace
    algorithms: tuple[str, ...]
    """The accepted signature algorithms. All are asymmetric."""
    principal_claim: str
    """The claim that identifies a principal of this issuer."""
    scopes: tuple[ScopeRule, ...] = ()
    """The skills and tools that each scope opens, in the order of the file; empty if every token opens everything."""
    client: IntrospectionClient | None = None
    """The client that introspects opaque tokens; None refuses opaque tokens."""
    audiences: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The accepted audiences of each endpoint, by its path."""
    operators: Mapping[OperatorRole, frozenset[str]] = field(default_factory=dict)
    """The scopes that give each operator role."""
    login: LoginClient | None = None
    """The client with which principals log in with a browser; None if they cannot."""

    @property
    def identity(self) -> str:
        """The issuer and the claim that identify the principals. If one of the two changes, the same principal name
        means somebody else."""
        return f"{self.principal_claim} of {self.place.issuer}"

    @property
    def first_scopes(self) -> tuple[str, ...]:
        """The scopes that a client requests first. It requests others when a call needs them."""
        return tuple(scope for scope, _ in self.scopes[:1])

    @property
    def known_scopes(self) -> tuple[str, ...]:
        """All scopes that the configuration names."""
        of_operators = (scope for role in OperatorRole for scope in sorted(self.operators.get(role, ())))
        return tuple(dict.fromkeys([*(scope for scope, _ in self.scopes), *of_operators]))

    def with_audiences(self, audiences: Mapping[str, frozenset[str]]) -> Issuer:
        """A copy with these audiences of each endpoint."""
        return replace(self, audiences=dict(audiences))


@dataclass(frozen=True, slots=True)
class IssuerMetadata:
    """The metadata of an issuer, and where it was found."""

    values: Mapping[str, Any]
    url: str

    @property
    def openid_url(self) -> str | None:
        """The URL of the OpenID Connect metadata; None if the issuer supports OAuth only."""
        if OPENID in self.url:
            return self.url
        issuer = self.text("issuer")
        if issuer is None or "id_token_signing_alg_values_supported" not in self.values:
            return None
        return f"{issuer.rstrip('/')}{OPENID}"

    def text(self, key: str) -> str | None:
        """The value of a key if it is a string; None otherwise."""
        value = self.values.get(key)
        return value if isinstance(value, str) else None

    def texts(self, key: str, default: Sequence[str] = ()) -> Sequence[str]:
        """The strings in the list of a key; the default if there is no list."""
        value = self.values.get(key)
        return [text for text in value if isinstance(text, str)] if isinstance(value, list) else default
