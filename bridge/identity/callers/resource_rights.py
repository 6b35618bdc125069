"""Which resources a principal may use: globs over normalised URIs, and over what a template can become. Pure.

A URI is judged in one form, however it is spelled: lower-case scheme and host, ASCII host, unreserved characters
decoded. A server may decode or resolve more than that. So a URI that could climb out of its folder, when decoded any
number of times, fits no glob but `*`.

Spec: RFC 3986 section 6.2.2 (normalisation), RFC 6570 (templates).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote

ALL: Final = "*"
"""The glob that fits everything, without a look at the URI."""

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):")
_DECODED_MOST: Final = 8
"""How many times a URI is decoded. One that is encoded more often fits no glob."""
_UPWARDS: Final = re.compile(r"(?:^|[/\\?#&=;:,])\.\.(?:$|[/\\?#&=;:,])")
"""A step to the parent folder, wherever a server could look for a path."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
"""Characters that some readers of URIs drop."""
_ESCAPED: Final = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_KEPT: Final = "%:/?#[]@!$&'()*+,;=-._~"
"""Characters that stay: reserved ones, unreserved ones, and the mark of an escape."""
_PORTS: Final[Mapping[str, str]] = {"http": ":80", "https": ":443", "ws": ":80", "wss": ":443"}
_EXPRESSION: Final = re.compile(r"\{([+#./;?&]?)([^{}]*)\}")
_WILD: Final = re.compile(r"[*?\[]")

_FORMS: Final[Mapping[str, tuple[str, str, bool]]] = {
    "": ("", ",", False),
    "+": ("", ",", False),
    "#": ("#", ",", False),
    ".": (".", ".", False),
    "/": ("/", "/", False),
    ";": (";", ";", True),
    "?": ("?", "&", True),
    "&": ("&", "&", True),
}
"""RFC 6570 appendix A: what an expression begins with, what stands between its values, and whether they are named."""


def may_use(globs: tuple[str, ...], uri: str) -> bool:
    """Whether globs allow a resource."""
    if ALL in globs:
        return True
    if not globs or _is_evasive(uri):
        return False
    judged = normalised(uri)
    return any(fnmatchcase(judged, _normalised_glob(glob)) for glob in globs)


def may_lead_there(globs: tuple[str, ...], template: str) -> bool:
    """Whether globs may allow a resource of a template. Only the ends of both are compared: what stands between
    wildcards is judged when the resource is read."""
    pattern = expanded(template, {})
    if ALL in globs:
        return True
    if "{" not in template and "*" not in pattern:
        return may_use(globs, template)
    judged = normalised(pattern)
    return any(_may_overlap(_normalised_glob(glob), judged) for glob in globs)


def may_become(globs: tuple[str, ...], template: str, values: Mapping[str, str]) -> bool:
    """Whether globs allow a resource of a template whose variables have these values, as far as they are known."""
    text = expanded(template, values)
    if all(name in values for _, names in _EXPRESSION.findall(template) for name in _names(names)):
        return may_use(globs, text)
    return ALL in globs or any(_may_overlap(_normalised_glob(glob), normalised(text)) for glob in globs)


def expanded(template: str, values: Mapping[str, str]) -> str:
    """A template with these values; `*` stands for each unknown value."""

    def of_expression(match: re.Match[str]) -> str:
        first, between, is_named = _FORMS[match[1]]
        safe = _KEPT if match[1] in ("+", "#") else "-._~"
        names = _names(match[2])
        if all(name not in values for name in names):
            return "*"
        texts = [
            f"{name}={quote(values[name], safe=safe)}" if is_named else quote(values[name], safe=safe)
            for name in names
            if name in values
        ]
        whole = between.join(texts)
        return f"{first}{whole}" if len(texts) == len(names) else f"*{whole}*"

    return _EXPRESSION.sub(of_expression, template)


def scheme_of(uri: str) -> str:
    """The scheme of a URI or template, in small letters; "" if it has none."""
    match = _SCHEME.match(uri.lstrip())
    return match[1].lower() if match else ""


def normalised(uri: str) -> str:
    """A URI in the form that globs are compared with. A text without a scheme is only encoded alike."""
    match = _SCHEME.match(uri)
    if match is None:
        return _escaped(uri)
    scheme, rest = match[1].lower(), uri[match.end() :]
    if not rest.startswith("//"):
        return f"{scheme}:{_escaped(rest)}"
    end = min((at for mark in "/?#" if (at := rest.find(mark, 2)) >= 0), default=len(rest))
    path = rest[end:]
    if scheme in _PORTS and not path.startswith("/"):
        path = f"/{path}"
    return f"{scheme}://{_authority(rest[2:end], _PORTS.get(scheme, ':'))}{_escaped(path)}"


def _authority(text: str, usual_port: str) -> str:
    user, at, host = text.rpartition("@")
    host = unicodedata.normalize("NFKC", unquote(host)).lower()
    host = host.removesuffix(":").removesuffix(usual_port).removesuffix(".")
    name, colon, port = host.partition(":")
    if not name.isascii() and not _WILD.search(name):
        try:
            name = name.encode("idna").decode()
        except UnicodeError:
            name = quote(name)
    return f"{_escaped(user)}{at}{name}{colon}{port}"


def _escaped(text: str) -> str:
    """A text with unreserved characters as they are, and all escapes alike."""

    def plain(match: re.Match[str]) -> str:
        character = chr(int(match[1], 16))
        return character if character in _UNRESERVED else match[0].upper()

    return quote(_ESCAPED.sub(plain, text), safe=_KEPT)


@lru_cache(1024)
def _normalised_glob(glob: str) -> str:
    return normalised(glob)


def _is_evasive(uri: str) -> bool:
    """Whether a server could take a URI for one outside its folder, or another reader could see another URI."""
    text = uri
    for _ in range(_DECODED_MOST):
        if _CONTROL.search(text) or _UPWARDS.search(unicodedata.normalize("NFKC", text)):
            return True
        if (decoded := unquote(text)) == text:
            return False
        text = decoded
    return True


def _may_overlap(glob: str, other: str) -> bool:
    """Whether two globs may fit the same text, by their literal beginnings and ends."""
    heads = _WILD.split(glob, maxsplit=1)[0], _WILD.split(other, maxsplit=1)[0]
    short, long = sorted(heads, key=len)
    if not long.startswith(short):
        return False
    if len(heads[0]) == len(glob):  # the glob is a literal
        return fnmatchcase(glob, other)
    tails = _tail(glob), _tail(other)
    short, long = sorted(tails, key=len)
    return long.endswith(short)


def _tail(glob: str) -> str:
    return re.split(r"[*?\]]", glob)[-1]


def _names(names: str) -> list[str]:
    """The variables of an expression, without their modifiers."""
    return [name.partition(":")[0].removesuffix("*").strip() for name in names.split(",")]
