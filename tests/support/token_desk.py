"""The token endpoint of an issuer of tests: it exchanges the tokens of callers, and gives and takes ID-JAGs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl

import jwt
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from tests.support.issuer import TokenIssuer, answer, signed

TYPES: Final = "urn:ietf:params:oauth:token-type:"
GRANTS: Final = "urn:ietf:params:oauth:grant-type:"

Form = dict[str, str]
Json = dict[str, Any]


@dataclass
class TokenDesk:
    """Answers at `/token` of an issuer. `said` answers a grant in its place; None leaves it to the desk."""

    issuer: TokenIssuer
    life: int | None = 300
    said: Callable[[Form], tuple[int, Json] | None] = lambda form: None
    asked: list[Form] = field(default_factory=list)
    opaque: dict[str, str] = field(default_factory=dict)
    """The subjects of tokens that say nothing of themselves."""

    def __post_init__(self) -> None:
        self.issuer.answers["/token"] = self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        form = dict(parse_qsl((await Request(scope, receive).body()).decode()))
        self.asked.append(form)
        status, body = self.said(form) or self._given(form)
        await answer(send, status, json.dumps(body).encode())

    @property
    def subjects(self) -> list[str]:
        """Whose tokens were exchanged, in order."""
        return [self._subject(one["subject_token"]) for one in self.asked if "subject_token" in one]

    def _given(self, form: Form) -> tuple[int, Json]:
        life = {} if self.life is None else {"expires_in": self.life}
        match form:
            case {"grant_type": "client_credentials"}:
                return 200, {"access_token": f"bridge-{len(self.asked)}", "token_type": "Bearer", **life}
            case {"requested_token_type": wanted, "subject_token": token} if wanted == f"{TYPES}id-jag":
                claims = {"iss": self.issuer.url, "sub": self._subject(token), "aud": form["audience"]}
                jag = signed(claims, typ="oauth-id-jag+jwt")
                given = {"access_token": jag, "token_type": "N_A", "issued_token_type": wanted}
                return 200, {**given, "expires_in": 300}
            case {"subject_token": token}:
                given = {"access_token": f"{self._subject(token)}-{len(self.asked)}", "token_type": "Bearer"}
                return 200, {**given, "issued_token_type": f"{TYPES}access_token", **life}
            case {"assertion": jag}:
                given = {"access_token": f"{self._subject(jag)}-{len(self.asked)}", "token_type": "Bearer"}
                return 200, {**given, **life}
        return 400, {"error": "unsupported_grant_type"}

    def _subject(self, token: str) -> str:
        claims = {} if token in self.opaque else jwt.decode(token, options={"verify_signature": False})
        return self.opaque.get(token) or str(claims["sub"])


def desk_at(issuer: TokenIssuer) -> TokenDesk:
    """The desk of an issuer that listens, in its metadata, too."""
    issuer.metadata["token_endpoint"] = f"{issuer.url}/token"
    return TokenDesk(issuer)
