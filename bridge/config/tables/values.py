"""The types of values in the tables of the file: secrets, paths, addresses, names, headers.

Each type checks its value with the file's folder and the environment (`ReadingContext`), and its message says which
values it accepts. The rules between keys are in `rules.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import parse_qs, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PlainValidator,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
)

from bridge.config.text.masking import has_secrets, words_of
from bridge.config.text.secrets import (
    HOW_TO_REFER,
    Secret,
    TokenHash,
    from_environment,
    reading_of,
    refused,
    secret_of,
    setting_of,
    token_of,
)
from bridge.config.text.wording import HEADER_NAME, NAME, POSTGRES_SCHEMES, SCOPE_NAME, shown_url
from bridge.http.private_addresses import is_private_host
from bridge.http.request_checks import API_KEY_HEADER, is_loopback, network_of
from bridge.http.tls import IDENTITY_KINDS
from bridge.replicas.replica_address import MAX_SOCKET_BYTES, UNIX, ReplicaAddress
from bridge.settings import Network
from bridge.translate.language.templates import TemplateError, template_of

_EXTENSION_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s,]{1,2000}")
_OWN_EXTENSIONS: Final = "urn:mcp-a2a:"
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:]+")
_BAGGAGE_KEY: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token (W3C Baggage 3.3.1)."""

MEMORY_STORE: Final = "memory:"
SQLITE_SCHEME: Final = "sqlite:///"
_STORES: Final = (
    f'`{{key}}` takes "{MEMORY_STORE}", "{SQLITE_SCHEME}PATH", the path of a file, or the URL of a PostgreSQL'
)
_READ_HEADERS: Final = frozenset(
    {
        "accept",
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "cookie",
        "host",
        "origin",
        "transfer-encoding",
        API_KEY_HEADER.lower(),
    }
)
"""Headers that the bridge reads for another purpose than the caller."""
_DATABASE_SECRETS: Final = frozenset({"password", "sslpassword"})
"""The query parameters of a libpq URL that are secret."""
_DATABASES: Final = "`{key}` takes the URL of a PostgreSQL, which begins with postgresql://"


class Table(BaseModel):
    """A table of the file: frozen, and an unknown key is an error."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        validate_default=True,
        hide_input_in_errors=True,  # a traceback of pydantic would show a secret in plain text
        defer_build=True,
    )

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Show no possible secrets in URLs."""
        for name, value in super().__repr_args__():
            yield name, shown_url(value) if isinstance(value, str) and "://" in value else value


def _fit_for_header(written: str | Secret) -> str | Secret:
    value = written.value if isinstance(written, Secret) else written
    if not value.isprintable() or not value.isascii():
        raise refused("`{key}` holds characters that no HTTP header can carry")
    return written


def _token(secret: Secret) -> Secret:
    _fit_for_header(secret)
    if " " in secret.value:
        raise refused("a token holds no spaces")
    return secret


def _own_token(secret: Secret | TokenHash) -> Secret | TokenHash:
    return secret if isinstance(secret, TokenHash) else _token(secret)


def _path(written: object, info: ValidationInfo) -> Path:
    if not isinstance(written, str | Path) or not written or "\0" in str(written):
        raise refused("`{key}` takes the path of a file")
    return reading_of(info).path(str(written))


def _audit_path(written: object, info: ValidationInfo) -> Path:
    return Path("-") if written in ("-", Path("-")) else _path(written, info)


def _folder(written: object, info: ValidationInfo) -> Path:
    path = _path(written, info)
    if not os.path.isdir(
        path
    ):  # unlike Path.is_dir, it accepts any text, even a text that is too long for a path
        raise refused(f"there is no folder {path}")
    return path


def _phrase(text: str) -> str:
    try:
        template_of(text)
    except TemplateError as exc:
        raise refused(str(exc)) from exc
    return text


def _url(url: str, info: ValidationInfo) -> str:
    try:
        place = urlsplit(url)
        leads = place.scheme in ("http", "https") and bool(place.hostname) and place.port != 0
    except ValueError as exc:
        raise refused("`{key}` is not a URL") from exc
    if not leads or not url.isprintable() or " " in url:
        raise refused("`{key}` takes a URL that begins with http:// or https:// and names a host")
    if "@" in place.netloc and not reading_of(info).on_command_line:
        raise refused("a URL must not hold a user or password", "write `auth` or `headers`")
    return url


def _secret_issuer(url: str) -> str:
    place = urlsplit(url)
    if place.scheme != "https" and not is_loopback(place.hostname or ""):
        raise refused("`{key}` takes an https:// URL: a secret is sent there")
    if place.query or place.fragment:
        raise refused("`{key}` takes the URL of an issuer, which has no query")
    return url


def _key_set_url(url: str) -> str:
    place = urlsplit(url)
    if place.scheme != "https" and not is_loopback(place.hostname or ""):
        raise refused(
            "`{key}` takes an https:// URL: over http an attacker could replace the keys and sign the card"
        )
    return url


def _base_url(url: str) -> str:
    place = urlsplit(url)
    if place.query or place.fragment or url.endswith(("?", "#")):
        message = "`{key}` takes a base URL without query and fragment, since the bridge appends paths to it"
        raise refused(message, f"write {shown_url(url).rstrip('/')}")
    return url.rstrip("/")


def _replica_url(written: str, info: ValidationInfo) -> str:
    if "@" in written and not written.startswith(UNIX):
        raise refused("`{key}` takes no user and no password: callers show their own credentials")
    url = written if written.startswith(UNIX) else _base_url(_url(written, info))
    try:
        ReplicaAddress.parse(url)
    except ValueError as exc:
        raise refused(
            f"`{{key}}` takes a URL, or {UNIX} and the absolute path of a socket of at most {MAX_SOCKET_BYTES} bytes,"
            " in ASCII"
        ) from exc
    return url


def _issuer_url(url: str) -> str:
    place = urlsplit(url)
    if place.query or place.fragment or url.endswith(("?", "#")):
        raise refused("`{key}` takes the identifier of an issuer, which has no query and no fragment")
    if place.scheme == "http" and not is_private_host(place.hostname or ""):
        raise refused("`{key}` must begin with https://, unless its host is on this machine or its network")
    return url


def _model_url(url: str) -> str:
    place = urlsplit(url)
    if place.scheme != "https" and not is_private_host(place.hostname or ""):
        raise refused(
            "`{key}` must begin with https://, unless its host is on this machine or its network: texts of callers go"
            " there"
        )
    return url


def _extension_uri(value: str) -> str:
    if not _EXTENSION_URI.fullmatch(value):
        raise ValueError(
            "an extension has an absolute URI without spaces and commas, as its specification gives it"
        )
    if value.startswith(_OWN_EXTENSIONS):
        raise ValueError("the bridge declares and activates its own extension by itself")
    return value


def _origin(url: str, info: ValidationInfo) -> str:
    place = urlsplit(_url(url, info))
    if place.path.strip("/") or place.query or place.fragment:
        raise refused("`{key}` takes an origin, which has no path", f"write {place.scheme}://{place.netloc}")
    return url.rstrip("/")


def _store(written: object, info: ValidationInfo) -> str | Secret:
    if isinstance(written, Secret | dict):
        return _database(written, info)
    if not isinstance(written, str) or not written or "\0" in written:
        raise refused(_STORES)
    if written == MEMORY_STORE:
        return written
    if written == MEMORY_STORE.rstrip(":"):
        raise refused(_STORES, f'write "{MEMORY_STORE}", or "./{written}" for a file of that name')
    if written.startswith(POSTGRES_SCHEMES):
        return _database(written, info)
    if "://" in written and not written.startswith(SQLITE_SCHEME):
        raise refused(_STORES)
    return str(reading_of(info).path(written.removeprefix(SQLITE_SCHEME)))


def _database(written: object, info: ValidationInfo) -> str | Secret:
    """The URL of a database. A URL with a password is a secret."""
    if reading_of(info).on_command_line:
        message = "replicas that share a PostgreSQL must share `keys`, too, which only a file can name"
        raise refused(message, "write a configuration file, and start `mcp-a2a serve FILE`")
    setting = setting_of(written, info)
    url = setting.value if isinstance(setting, Secret) else setting
    if not url.startswith(POSTGRES_SCHEMES):
        raise refused(_DATABASES)
    try:
        place = urlsplit(url)
        has_password = bool(place.password) or not _DATABASE_SECRETS.isdisjoint(parse_qs(place.query))
    except ValueError as exc:
        raise refused("`{key}` is not a URL") from exc
    if has_password and not isinstance(setting, Secret):
        raise refused(
            "`{key}` holds a password, which must not stand in the file in plain text",
            f"write {HOW_TO_REFER}",
        )
    return setting


def _host_name(name: str) -> str:
    if not _HOST_NAME.fullmatch(name):
        raise refused("`{key}` takes names of hosts, without scheme and port")
    return name.lower()


def _listen_address(address: str) -> str:
    host, _, port = address.rpartition(":")
    is_port = port.isascii() and port.isdecimal() and int(port) < 65536
    if not is_port or not _HOST_NAME.fullmatch(host.removeprefix("[").removesuffix("]")):
        raise refused("`{key}` takes an address to listen on, such as 127.0.0.1:9464")
    return address.lower()


def _receiver(receiver: str) -> str:
    host, colon, port = receiver.rpartition(":")
    is_host = _HOST_NAME.fullmatch(host) or (host.startswith("[") and host.endswith("]"))
    if not (colon and is_host and port.isdecimal() and port.isascii() and 0 < int(port) < 65536):
        raise refused('`{key}` takes receivers as "HOST:PORT"')
    return f"{host.lower()}:{int(port)}"


def _baggage_key(key: str) -> str:
    if not _BAGGAGE_KEY.fullmatch(key):
        raise refused("`{key}` takes keys of a baggage: letters, digits and marks such as - . _")
    return key


def _proxy_network(network: str) -> str:
    if network_of(network).prefixlen == 0:
        raise refused(
            f"{network} covers every address: anyone could claim to be any principal",
            "name the addresses of the proxies",
        )
    return network


def _proxy_header(header: str) -> str:
    if header.lower() in _READ_HEADERS:
        raise refused(
            f"the header {header} cannot say who calls: the bridge reads it for another purpose",
            'name a header that only the proxy writes, like "X-User"',
        )
    return header


def _identity(identity: str) -> str:
    kind = next((known for known in IDENTITY_KINDS if identity.startswith(known)), None)
    if kind is None or len(identity) == len(kind):
        kinds = ", ".join(f'"{known}..."' for known in IDENTITY_KINDS)
        raise refused(f"`{{key}}` takes an identity in a certificate: {kinds}")
    return identity


def _from_variable(written: object, info: ValidationInfo) -> Secret:
    if isinstance(written, str):
        return from_environment(written, reading_of(info))
    return secret_of(written, info)


def _words(value: object) -> object:
    if isinstance(value, str):
        words = words_of(value)
        written = ["COMMAND", "ARGUMENT"] if has_secrets(words) else words
        quoted = ", ".join(f'"{shown_url(word)}"' for word in written)
        raise refused("`{key}` takes a list: the command and its arguments", f"write [{quoted}]")
    return value


def _one_or_more(written: object) -> object:
    return [written] if isinstance(written, str) else written


_SECRET_SCHEMA: Final[dict[str, Any]] = {
    "description": "A secret: an environment variable, or a file that holds it.",
    "oneOf": [
        {
            "type": "object",
            "properties": {key: {"type": "string"}},
            "required": [key],
            "additionalProperties": False,
        }
        for key in ("env", "file")
    ],
}
_OWN_TOKEN_SCHEMA: Final[dict[str, Any]] = {
    "description": "A token that callers show: an environment variable, a file that holds it, or its SHA-256.",
    "oneOf": [
        *_SECRET_SCHEMA["oneOf"],
        {
            "type": "object",
            "properties": {"sha256": {"type": "string", "pattern": "^[0-9A-Fa-f]{64}$"}},
            "required": ["sha256"],
            "additionalProperties": False,
        },
    ],
}
_TEXT_SCHEMA: Final = {"type": "string", "minLength": 1}
_URL_SCHEMA: Final = {"type": "string", "format": "uri"}
_PATH_SCHEMA: Final = {"type": "string", "format": "path", "minLength": 1}
_PATHS_SCHEMA: Final = {"anyOf": [_PATH_SCHEMA, {"type": "array", "items": _PATH_SCHEMA}]}

FailPolicy = Literal["open", "closed"]
IsPublic = Annotated[
    bool,
    Field(
        description="whether everybody may find it: `/.well-known/ard.json` and `/.well-known/ai-catalog.json` list it "
        "(docs/catalog.md); needs `public_url` in `[bridge]`"
    ),
]
FaceLanguage = Literal["phrases", "strict", "model"]
SessionOf = Literal["shared", "principal", "context"]

Words = StringConstraints(min_length=1)
Text = Annotated[str, Words]
Name = Annotated[str, StringConstraints(pattern=NAME)]
HeaderName = Annotated[str, StringConstraints(pattern=HEADER_NAME)]
Json = Annotated[JsonValue, WithJsonSchema({})]
HttpUrl = Annotated[str, AfterValidator(_url), WithJsonSchema(_URL_SCHEMA)]
IssuerUrl = Annotated[HttpUrl, AfterValidator(_issuer_url), WithJsonSchema(_URL_SCHEMA)]
KeySetUrl = Annotated[HttpUrl, AfterValidator(_key_set_url), WithJsonSchema(_URL_SCHEMA)]
SecretIssuerUrl = Annotated[HttpUrl, AfterValidator(_secret_issuer), WithJsonSchema(_URL_SCHEMA)]
ProxyHeader = Annotated[HeaderName, AfterValidator(_proxy_header)]
ScopeName = Annotated[str, StringConstraints(pattern=SCOPE_NAME)]
ScopeNames = Annotated[tuple[ScopeName, ...], Field(strict=False)]
BaseUrl = Annotated[HttpUrl, AfterValidator(_base_url)]
ModelUrl = Annotated[BaseUrl, AfterValidator(_model_url), WithJsonSchema(_URL_SCHEMA)]
ReplicaUrl = Annotated[str, AfterValidator(_replica_url), WithJsonSchema(_TEXT_SCHEMA)]
ExtensionUri = Annotated[str, AfterValidator(_extension_uri), WithJsonSchema(_URL_SCHEMA)]
OriginUrl = Annotated[str, AfterValidator(_origin), WithJsonSchema(_URL_SCHEMA)]
AuditPath = Annotated[Path, PlainValidator(_audit_path), WithJsonSchema(_PATH_SCHEMA)]
FilePath = Annotated[Path, PlainValidator(_path), WithJsonSchema(_PATH_SCHEMA)]
Folder = Annotated[Path, PlainValidator(_folder), WithJsonSchema(_PATH_SCHEMA)]
Folders = Annotated[tuple[Folder, ...], Field(strict=False, max_length=64)]
_TEXT_OR_SECRET_SCHEMA: Final[dict[str, Any]] = {"anyOf": [_TEXT_SCHEMA, _SECRET_SCHEMA]}
StorePlace = Annotated[str | Secret, PlainValidator(_store), WithJsonSchema(_TEXT_OR_SECRET_SCHEMA)]
DatabaseUrl = Annotated[str | Secret, PlainValidator(_database), WithJsonSchema(_TEXT_OR_SECRET_SCHEMA)]

SecretValue = Annotated[Secret, PlainValidator(secret_of), WithJsonSchema(_SECRET_SCHEMA)]
Variable = Annotated[Secret, PlainValidator(_from_variable), WithJsonSchema(_TEXT_SCHEMA)]
HeaderSecret = Annotated[SecretValue, AfterValidator(_fit_for_header)]
Token = Annotated[SecretValue, AfterValidator(_token)]
OwnToken = Annotated[
    Secret | TokenHash,
    PlainValidator(token_of),
    AfterValidator(_own_token),
    WithJsonSchema(_OWN_TOKEN_SCHEMA),
]
"""A token with which callers authenticate."""
OwnTokens = Annotated[tuple[OwnToken, ...], Field(strict=False, max_length=2)]
TokenVariable = Annotated[Variable, AfterValidator(_token)]
Setting = Annotated[
    str | Secret, PlainValidator(setting_of), WithJsonSchema({"anyOf": [{"type": "string"}, _SECRET_SCHEMA]})
]
HeaderSetting = Annotated[Setting, AfterValidator(_fit_for_header)]

Texts = Annotated[tuple[Text, ...], Field(strict=False)]
Phrases = Annotated[tuple[Annotated[Text, AfterValidator(_phrase)], ...], Field(strict=False, max_length=100)]
CommandWords = Annotated[tuple[str, ...], Field(strict=False, min_length=1), BeforeValidator(_words)]
SourceNames = Annotated[tuple[Text, ...], Field(strict=False, min_length=1)]
ExtensionUris = Annotated[tuple[ExtensionUri, ...], Field(strict=False)]
Origins = Annotated[tuple[OriginUrl, ...], Field(strict=False)]
ListenAddress = Annotated[str, AfterValidator(_listen_address)]
Receiver = Annotated[str, AfterValidator(_receiver), WithJsonSchema(_TEXT_SCHEMA)]
Receivers = Annotated[tuple[Receiver, ...], Field(strict=False)]
CardForms = Annotated[tuple[Literal["strict", "sdk"], ...], Field(strict=False, min_length=1)]
HostNames = Annotated[tuple[Annotated[str, AfterValidator(_host_name)], ...], Field(strict=False)]
BaggageKeys = Annotated[tuple[Annotated[str, AfterValidator(_baggage_key)], ...], Field(strict=False)]
ProxyNetworks = Annotated[tuple[Annotated[Network, AfterValidator(_proxy_network)], ...], Field(strict=False)]
Identities = Annotated[
    tuple[Annotated[str, AfterValidator(_identity)], ...],
    Field(strict=False),
    BeforeValidator(_one_or_more),
    WithJsonSchema({"anyOf": [_TEXT_SCHEMA, {"type": "array", "items": _TEXT_SCHEMA}]}),
]
FilePaths = Annotated[
    tuple[FilePath, ...], Field(strict=False), BeforeValidator(_one_or_more), WithJsonSchema(_PATHS_SCHEMA)
]
