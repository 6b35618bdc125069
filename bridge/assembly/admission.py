"""Decides who may call, across changes of the plan: a plan can revoke secrets at once, and never opens a closed bridge.

Once a bridge has asked for credentials, a plan without any admits nobody, unless it allows unauthenticated callers.
The bridge itself is a principal then: its offered servers call its published agents with a secret that is never
disclosed.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bridge.assembly.issuers import Issuers, issuers_of
from bridge.assembly.own_callers import CALLER_HEADER, OwnCallers, UnknownCallerError
from bridge.assembly.plan import Plan
from bridge.http.request_checks import API_KEY_HEADER, is_loopback
from bridge.identity.callers.issuers import Issuer
from bridge.identity.callers.principals import (
    ANONYMOUS,
    ISSUER_MARK,
    LOCAL,
    OperatorRole,
    Principal,
    PrincipalNames,
)
from bridge.identity.callers.verifiers import FORWARDED, Access, Credential, Scheme, Verifier, verifiers_of

if TYPE_CHECKING:
    from bridge.identity.callers.issuer_login import IssuerLogin

logger = logging.getLogger(__name__)

ITSELF: Final = Principal("(itself)")
"""The principal of an offered server that calls an agent published here. No name in a file can be spelled so."""

NOBODY_LEFT: Final = (
    "the configuration has no principal, so every request is refused: add a principal, or"
    " allow_unauthenticated = true is written in [bridge]"
)


class Admission:
    """The verifiers of a bridge, and how a plan changes them."""

    def __init__(self, plan: Plan) -> None:
        """Admit the principals of the plan."""
        self._everyone = LOCAL if is_loopback(plan.place.host) else ANONYMOUS
        self._token = secrets.token_urlsafe(32)
        self._credentials = tuple(plan.credentials)
        self._issuers: Mapping[str, Issuer] = issuers_of(plan)
        self.issuers = Issuers(plan.profile.issuers)
        """The keys of the issuers."""
        self._own_scheme: Scheme | None = None
        self.own_callers = OwnCallers(self._token)
        self.access = Access((), self._everyone, self._for_whom)
        self._set(self._credentials, self._issuers, is_open=True)

    def _for_whom(self, verified: Principal, headers: Mapping[str, str]) -> Principal:
        """The principal for which the bridge calls itself. The header of any other caller is ignored.

        Raises:
            RefusedError: 401, that principal may no longer call.
        """
        if verified.name != ITSELF.name or (caller_header := headers.get(CALLER_HEADER)) is None:
            return verified
        try:
            principal = self.own_callers.principal_in(caller_header)
        except UnknownCallerError as exc:
            raise self.access.refusal("belongs to no known principal") from exc
        if not self.knows(principal.name):
            raise self.access.refusal("belongs to a principal who may no longer call")
        return self._with_shared(principal)

    def _with_shared(self, principal: Principal) -> Principal:
        """A principal with its rules for resources and prompts. The MCP server that it called has checked only what it
        may use of the tools."""
        known = next(
            (
                credential.principal
                for credential in self._credentials
                if credential.principal.name == principal.name
            ),
            None,
        )
        if known is not None:
            return replace(principal, resources=known.resource_globs, prompts=known.prompt_globs)
        name, mark, _ = principal.name.partition(ISSUER_MARK)
        if mark and self._issuers[name].scopes:
            return replace(principal, resources=(), prompts=())
        return principal

    def knows(self, principal: str) -> bool:
        """Whether a principal may call: it has a secret, or an issuer whose tokens are accepted; or it is the host that
        has started the bridge for itself, over stdio."""
        issuer, mark, _ = principal.partition(ISSUER_MARK)
        has_secret = any(credential.principal.name == principal for credential in self._credentials)
        return has_secret or (bool(mark) and issuer in self._issuers) or principal == LOCAL.name

    @property
    def credentials(self) -> Sequence[Credential]:
        """The credentials that are accepted, without the bridge's own."""
        return self._credentials

    @property
    def trusted(self) -> Mapping[str, Issuer]:
        """The issuers whose tokens are accepted, by name."""
        return self._issuers

    @property
    def own_scheme(self) -> Scheme | None:
        """The scheme of the bridge's own secret; None while no credential is asked for."""
        return self._own_scheme

    @property
    def closed(self) -> str | None:
        """Why no principal is admitted; None when at least one is."""
        has_any = self._credentials or self._issuers
        return NOBODY_LEFT if self.access.needs_token and not has_any else None

    @property
    def own_token(self) -> str:
        """The bridge's own secret."""
        return self._token

    @property
    def own_headers(self) -> Mapping[str, str]:
        """The header with the bridge's own API key, if API keys are accepted first; else empty."""
        return {API_KEY_HEADER: self._token} if self._own_scheme is Scheme.API_KEY else {}

    @property
    def own_bearer(self) -> str | None:
        """The bridge's own bearer token, if bearer tokens are accepted first; else None."""
        return self._token if self._own_scheme is Scheme.BEARER else None

    def issuer_of(self, principal: str) -> Issuer | None:
        """The issuer at which a principal can show in a browser who it is; None if there is none."""
        name, mark, _ = principal.partition(ISSUER_MARK)
        issuer = self._issuers.get(name) if mark else None
        return None if issuer is None or issuer.login is None else issuer

    def login_at(self, principal: str) -> IssuerLogin | None:
        """The login at the issuer of a principal; None if no issuer can tell who it is."""
        issuer = self.issuer_of(principal)
        return None if issuer is None else self.issuers.login_at(issuer)

    def voucher_of(self, principal: str) -> str:
        """The identity of the issuer that says who is this principal; empty for a principal of the file."""
        name, mark, _ = principal.partition(ISSUER_MARK)
        issuer = self._issuers.get(name) if mark else None
        return "" if issuer is None else issuer.identity

    def can_log_in(self, principal: str) -> bool:
        """Whether a browser can show that it is this principal, by its token or at its issuer."""
        has_token = any(
            credential.principal.name == principal and credential.scheme is not Scheme.CONNECTION
            for credential in self._credentials
        )
        return has_token or self.issuer_of(principal) is not None

    def present(self, principal: Principal, face: str) -> Principal | None:
        """The principal with its present rights in a face; None if it has lost them.

        The token of an issuer's principal gave the rights. They hold while the rules for the scopes of the issuer stay
        the same. After a change, the next token of the principal gives its rights.
        """
        if principal.is_judged:
            return principal if self.knows(principal.name) else None
        name, mark, _ = principal.name.partition(ISSUER_MARK)
        if mark:
            issuer = self._issuers.get(name)
            rules = (
                None
                if issuer is None
                else Principal(principal.name, scopes=issuer.scopes).in_face(face).scopes
            )
            return principal if rules == principal.scopes else None
        known = (
            credential.principal
            for credential in self._credentials
            if credential.principal.name == principal.name
        )
        known_principal = next(known, None)
        return None if known_principal is None else known_principal.in_face(face)

    def require_clear(self, plan: Plan) -> None:
        """Refuse a plan whose secrets do not tell its principals apart.

        Raises:
            UsageError: two principals have the same secret.
        """
        verifiers_of(plan.credentials)

    def turn_away(self, plan: Plan) -> PrincipalNames:
        """Revoke the secrets and issuers that a plan leaves out, and grant nothing; return the principals whose streams
        must end.

        A principal with changed skills keeps its old ones until the plan is taken over: new skills could show it what
        the plan is about to hide. So do the principals of an issuer with other rules. An operator with a lesser role
        has it at once.
        """
        before, trusted = self._credentials, self._issuers
        self.issuers.withhold(
            credential.digest for credential in plan.credentials
        )  # those that are not granted yet, too
        if not self.access.needs_token:
            # Everyone may do everything: to ask for any secret takes rights away.
            self._set(tuple(plan.credentials), issuers_of(plan), is_open=True)
            return PrincipalNames(frozenset({self._everyone.name} if plan.asks_for_credentials else ()))
        left = {
            name: _with_fewer_operators(issuer, plan.issuers[name])
            for name, issuer in trusted.items()
            if name in plan.issuers
            and (plan.issuers[name].place, plan.issuers[name].identity) == (issuer.place, issuer.identity)
        }
        self._set(_left(before, plan.credentials), left, is_open=False)
        gone = frozenset(name for name, issuer in trusted.items() if left.get(name) != issuer)
        return PrincipalNames(_without_a_secret(before, self._credentials), gone)

    def admit(self, plan: Plan) -> PrincipalNames:
        """Admit the principals of a plan; return the names of principals whose rights changed or ended."""
        before, trusted, is_open = self._credentials, self._issuers, not self.access.needs_token
        self._set(tuple(plan.credentials), issuers_of(plan), is_open=plan.allow_unauthenticated or is_open)
        now = _by_principal(self._credentials)
        return PrincipalNames(
            frozenset(name for name, known in _by_principal(before).items() if now.get(name) != known),
            frozenset(name for name, known in trusted.items() if self._issuers.get(name) != known),
        )

    def _set(
        self, credentials: tuple[Credential, ...], issuers: Mapping[str, Issuer], *, is_open: bool
    ) -> None:
        """Accept these credentials and issuers. If there are none, admit everyone if `is_open`, else nobody."""
        was_closed = self.closed
        self._credentials, self._issuers = credentials, issuers
        has_any = bool(credentials or issuers)
        if has_any or is_open:
            self._own_scheme = _scheme_of(credentials, issuers)
        # Otherwise only our own secret is left, so that cards continue to ask for one.
        closed = "" if has_any or is_open else f"{NOBODY_LEFT[0].upper()}{NOBODY_LEFT[1:]}"
        self.access.update(self._known_by(credentials, issuers), why_nobody=closed)
        if self.closed and not was_closed:
            logger.warning("every request is refused with 401: %s", NOBODY_LEFT)

    def _known_by(
        self, credentials: Sequence[Credential], issuers: Mapping[str, Issuer]
    ) -> Sequence[Verifier]:
        """The verifiers of these credentials, of the bridge's own secret, and of the tokens of these issuers."""
        # By the scheme of the first credential, so that no card declares a scheme only for us.
        scheme = _scheme_of(credentials, issuers) or self._own_scheme
        own = [Credential(ITSELF, self._token, scheme)] if scheme else []
        self.issuers.withhold(credential.digest for credential in (*credentials, *own))
        # A card declares no scheme only for us, unless nobody else may call.
        declared = {
            credential.scheme for credential in credentials if not credential.token.startswith(FORWARDED)
        }
        alone = {scheme} if scheme and not credentials and not issuers else set[Scheme]()
        secrets = verifiers_of([*credentials, *own], frozenset(declared | alone))
        return [*secrets, *self.issuers.verifiers(issuers)]


def _scheme_of(credentials: Sequence[Credential], issuers: Mapping[str, Issuer]) -> Scheme | None:
    in_headers = (
        credential.scheme for credential in credentials if credential.scheme is not Scheme.CONNECTION
    )
    return next(in_headers, Scheme.BEARER if issuers or credentials else None)


def _left(before: Sequence[Credential], now: Sequence[Credential]) -> tuple[Credential, ...]:
    """The new credentials that grant nobody more than before."""
    principals = {credential.principal for credential in before}
    had = {_secret(credential): credential for credential in before}
    left = (
        credential
        if credential.principal in principals
        else _with_lesser_role(had.get(_secret(credential)), credential)
        for credential in now
    )
    return tuple(credential for credential in left if credential is not None)


def _with_lesser_role(before: Credential | None, now: Credential) -> Credential | None:
    if before is None:
        return None
    lesser = min(
        (credential.principal.operator for credential in (before, now)), key=[None, *OperatorRole].index
    )
    return replace(before, principal=replace(before.principal, operator=lesser))


def _with_fewer_operators(before: Issuer, now: Issuer) -> Issuer:
    operators = {role: held & now.operators.get(role, frozenset()) for role, held in before.operators.items()}
    return before if operators == before.operators else replace(before, operators=operators)


def _without_a_secret(before: Sequence[Credential], now: Sequence[Credential]) -> frozenset[str]:
    """The names of principals with a secret that is no longer accepted, or with a lesser role."""
    left = {(*_secret(credential), credential.principal.operator) for credential in now}
    return frozenset(
        credential.principal.name
        for credential in before
        if (*_secret(credential), credential.principal.operator) not in left
    )


def _secret(credential: Credential) -> tuple[str, Scheme, bytes]:
    return credential.principal.name, credential.scheme, credential.digest


def _by_principal(credentials: Sequence[Credential]) -> dict[str, frozenset[Credential]]:
    """The credentials of each principal, by name."""
    names = {credential.principal.name for credential in credentials}
    return {
        name: frozenset(credential for credential in credentials if credential.principal.name == name)
        for name in names
    }
