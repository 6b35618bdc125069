"""Issuers of tokens as values: what the configuration says of each. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from bridge.identity.callers.principals import OperatorRole, ScopeRule

OPENID: Final = "/.well-known/openid-configuration"
"""Where OpenID Connect Discovery has the metadata of an issuer."""


@dataclass(frozen=True, slots=True)
class IssuerPlace:
    """Where the keys of an issuer are found."""

    issuer: str
    """The issuer's identifier. Its metadata is found by it (RFC 8414, OpenID Connect Discovery)."""
    jwks_url: str | None = None
    """The URL of the key set; None where the metadata says it."""
    introspection_url: str | None = None
    """The URL at which tokens are introspected; None where the metadata says it."""
    allow_private: bool = False
    """Whether metadata may lead from a public issuer to this machine or its network."""


@dataclass(frozen=True, slots=True)
class IntrospectionClient:
    """The bridge as a client of an issuer, which may ask it about tokens."""

    id: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class LoginClient:
    """The bridge as a client of an issuer, at which people show in a browser who they are."""

    id: str
    secret: str = field(default="", repr=False)
    """Empty if it has none."""
    method: Literal["basic", "post"] = "basic"
    """How the secret is sent."""
    scopes: tuple[str, ...] | None = None
    """The scopes of a token for the console; None for all that the configuration names for the issuer."""
    resource: str | None = None
    """The resource indicator of such a token; "" for none, None for the audience of the console."""


@dataclass(frozen=True, slots=True)
class Issuer:
    """An authorization server whose tokens are accepted."""

    name: str
    """Its name in the configuration."""
    place: IssuerPlace
    algorithms: tuple[str, ...]
    """The algorithms of signatures that are accepted. All are asymmetric."""
    principal_claim: str
    """The claim that tells the principals of this issuer apart."""
    scopes: tuple[ScopeRule, ...] = ()
    """What each scope opens, in the order of the file; empty when every token opens everything."""
    client: IntrospectionClient | None = None
    """The client that asks about tokens that are no JSON Web Tokens; None refuses them."""
    audiences: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The audiences of each face, by the path of the face."""
    operators: Mapping[OperatorRole, frozenset[str]] = field(default_factory=dict)
    """The scopes that make a caller an operator, by the role."""
    login: LoginClient | None = None
    """The client with which its principals show in a browser who they are; None if none of them can."""

    @property
    def identity(self) -> str:
        """What makes its principals who they are: with another issuer under the name, or another claim, the same name
        is somebody else."""
        return f"{self.principal_claim} of {self.place.issuer}"

    @property
    def first_scopes(self) -> tuple[str, ...]:
        """The scopes that a client asks for first. It asks for others once a call needs them."""
        return tuple(scope for scope, _ in self.scopes[:1])

    @property
    def known_scopes(self) -> tuple[str, ...]:
        """All scopes that the configuration names."""
        of_operators = (scope for role in OperatorRole for scope in sorted(self.operators.get(role, ())))
        return tuple(dict.fromkeys([*(scope for scope, _ in self.scopes), *of_operators]))

    def with_audiences(self, audiences: Mapping[str, frozenset[str]]) -> Issuer:
        """A copy with the audiences of each face."""
        return replace(self, audiences=dict(audiences))


@dataclass(frozen=True, slots=True)
class IssuerMetadata:
    """The metadata of an issuer, and where it was found."""

    values: Mapping[str, Any]
    url: str

    @property
    def openid_url(self) -> str | None:
        """Where OpenID Connect Discovery has the metadata; None if the issuer knows OAuth only."""
        if OPENID in self.url:
            return self.url
        issuer = self.text("issuer")
        if issuer is None or "id_token_signing_alg_values_supported" not in self.values:
            return None
        return f"{issuer.rstrip('/')}{OPENID}"

    def text(self, key: str) -> str | None:
        """A value that is a text; None if there is none."""
        value = self.values.get(key)
        return value if isinstance(value, str) else None

    def texts(self, key: str, default: Sequence[str] = ()) -> Sequence[str]:
        """The texts in a list; the default if there is no list."""
        value = self.values.get(key)
        return [one for one in value if isinstance(one, str)] if isinstance(value, list) else default
