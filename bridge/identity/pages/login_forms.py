"""The HTML forms of the login pages: who the person is, and whether the person approves.

Names of peers and callers are untrusted: each is cut to a limit, put on one line without hidden characters, and
escaped.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Final

from bridge.identity.callers.issuer_login import IssuerLogin
from bridge.identity.logins.login_credentials import LoginConfig
from bridge.identity.pages.login_links import BrowserPerson, LoginLink
from bridge.text.safe_text import with_visible_characters

_SHOWN: Final = 200
"""The most characters of a name that a page shows."""

FILE_PERSON: Final = (
    'The token with which you call this bridge: <input type="password" name="token" autocomplete="off" required'
    " autofocus> <button>Go on</button>"
)
"""Asks for the token of a principal of the file."""


def issuer_button(login: IssuerLogin) -> str:
    """Asks a principal of an issuer to log in there."""
    place = shown(login.issuer.place.issuer)
    return f'<button name="who" value="yes">Log in at {shown(login.issuer.name)}</button> ({place})'


def who_form(link: LoginLink, person: BrowserPerson, asks: str) -> str:
    """Asks who is in the browser."""
    return (
        f"<p>{shown(link.server)} needs a login of {shown(link.principal)}. First prove that this is you.</p>"
        f'<form method="post">{_hidden(person)}{asks}</form>'
    )


def approval_form(
    link: LoginLink, login_config: LoginConfig, person: BrowserPerson, missed: Sequence[str] = ()
) -> str:
    """Asks whether the person approves. `missed` are scopes that the current login lacks. The next login asks for them,
    too."""
    scopes = login_config.scopes or ("what the server asks for",)
    rows = {
        "Server": (f"{link.server} ({login_config.key.url})",),
        "Scopes": tuple(dict.fromkeys([*scopes, *missed])),
        "Asked by": (link.client,),
        "You are": (link.principal,),
    }
    lines = "".join(
        f"<dt>{name}</dt><dd>{', '.join(map(shown, values))}</dd>" for name, values in rows.items()
    )
    return (
        f"<p>Calls of {shown(link.principal)} through this bridge will use your account there.</p><dl>{lines}</dl>"
        f'<form method="post">{_hidden(person)}<button name="approve" value="yes">Approve and log in</button> '
        '<button name="decline" value="yes">Decline</button></form>'
    )


def shown(text: str) -> str:
    """A name in HTML."""
    return html.escape(with_visible_characters(text[:_SHOWN], in_one_line=True))


def _hidden(person: BrowserPerson) -> str:
    return f'<input type="hidden" name="csrf" value="{html.escape(person.csrf)}">'
