"""Checks of the card, looked at once an agent. Spec: A2A 1.0 sections 4.4, 4.5, 8."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from jsonschema import SchemaError
from jsonschema.validators import validator_for

from tests.a2a_checks.card import Card, require_card
from tests.a2a_checks.shapes import Aspect, Field, Flaw, Shape, at_least_one, flaws_in, may, must, some
from tests.a2a_checks.table import ONCE, Check, Level, Need, Section, need, require
from tests.a2a_checks.wire import Answer, Request, Wire

INTERFACE: Final = Shape(
    "AgentInterface",
    {"url": must(str), "protocolBinding": must(str), "protocolVersion": must(str), "tenant": may(str)},
)
SKILL: Final = Shape(
    "AgentSkill",
    {
        "id": must(str),
        "name": must(str),
        "description": must(str),
        "tags": at_least_one(str),
        "examples": some(str),
        "inputModes": some(str),
        "outputModes": some(str),
    },
)
EXTENSION: Final = Shape(
    "AgentExtension",
    {"uri": must(str), "description": may(str), "required": may(bool), "params": may(dict)},
)
CAPABILITIES: Final = Shape(
    "AgentCapabilities",
    {
        "streaming": may(bool),
        "pushNotifications": may(bool),
        "extendedAgentCard": may(bool),
        "extensions": some(EXTENSION),
    },
)
PROVIDER: Final = Shape("AgentProvider", {"url": must(str), "organization": must(str)})
SIGNATURE: Final = Shape(
    "AgentCardSignature", {"protected": must(str), "signature": must(str), "header": may(dict)}
)
_SCHEMES: Final[Mapping[str, Shape]] = {
    "apiKeySecurityScheme": Shape("APIKeySecurityScheme", {"location": must(str), "name": must(str)}),
    "httpAuthSecurityScheme": Shape("HTTPAuthSecurityScheme", {"scheme": must(str)}),
    "oauth2SecurityScheme": Shape("OAuth2SecurityScheme", {"flows": must(dict)}),
    "openIdConnectSecurityScheme": Shape("OpenIdConnectSecurityScheme", {"openIdConnectUrl": must(str)}),
    "mtlsSecurityScheme": Shape("MutualTlsSecurityScheme", {"description": may(str)}),
}
SCHEME: Final = Shape(
    "SecurityScheme", {name: may(shape) for name, shape in _SCHEMES.items()}, choice=tuple(_SCHEMES)
)
CARD: Final = Shape(
    "AgentCard",
    {
        "name": must(str),
        "description": must(str),
        "version": must(str),
        "supportedInterfaces": at_least_one(INTERFACE),
        "capabilities": must(CAPABILITIES),
        "defaultInputModes": at_least_one(str),
        "defaultOutputModes": at_least_one(str),
        "skills": at_least_one(SKILL),
        "provider": may(PROVIDER),
        "documentationUrl": may(str),
        "iconUrl": may(str),
        "securitySchemes": may(dict),
        "securityRequirements": some(dict),
        "signatures": some(SIGNATURE),
    },
)
_VERSION: Final = re.compile(r"\d+\.\d+")


@dataclass(frozen=True, slots=True)
class Look:
    """The card, and how to ask for it again."""

    card: Card
    wire: Wire
    headers: Mapping[str, str]

    async def again(self, **headers: str) -> Answer:
        """The card's answer to a request with more headers."""
        asked = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return await self.wire.send(Request("GET", self.card.url, asked))


def _no_flaws(look: Look, shape: Shape, *aspects: Aspect) -> None:
    require_card(look.card)
    _require_none([flaw for flaw in flaws_in(look.card.fields, shape) if flaw.aspect in aspects])


def _require_none(flaws: list[Flaw]) -> None:
    require(not flaws, "no fault", "; ".join(str(flaw) for flaw in flaws[:5]))


async def is_served(look: Look) -> None:
    """One check; its sentence stands in the table below, as with all others."""
    require_card(look.card)
    require(look.card.answer.media_type.endswith("json"), "a JSON media type", look.card.answer.shown())


async def has_required_fields(look: Look) -> None:
    own = Shape(
        "AgentCard", {name: Field(_loose(known), known.is_required) for name, known in CARD.fields.items()}
    )
    require_card(look.card)
    missing = [flaw for flaw in flaws_in(look.card.fields, own) if flaw.aspect is Aspect.REQUIRED]
    _require_none([flaw for flaw in missing if flaw.value != []])


def _loose(known: Field) -> Any:
    return object if known.is_many or isinstance(known.kind, Shape) else known.kind


async def has_full_arrays(look: Look) -> None:
    require_card(look.card)
    names = [name for name, known in CARD.fields.items() if known.is_many and known.is_required]
    empty = [name for name in names if not look.card.fields.get(name)]
    empty += [f"skills[{n}].tags" for n, skill in enumerate(look.card.skills) if not skill.get("tags")]
    require(not empty, "at least one element in each required array", f"none in {', '.join(empty)}")


async def has_the_types(look: Look) -> None:
    _no_flaws(look, CARD, Aspect.TYPE, Aspect.CHOICE, Aspect.ENUM)


async def has_camel_case(look: Look) -> None:
    _no_flaws(look, CARD, Aspect.NAME)


async def has_whole_interfaces(look: Look) -> None:
    require_card(look.card)
    flaws = [flaw for one in look.card.interfaces for flaw in flaws_in(one, INTERFACE)]
    _require_none(flaws)
    for one in look.card.interfaces:
        if one["protocolBinding"] in ("JSONRPC", "HTTP+JSON"):
            parts = urlsplit(one["url"])
            require(parts.scheme in ("http", "https") and bool(parts.netloc), "an absolute URL", one["url"])


async def has_short_versions(look: Look) -> None:
    require_card(look.card)
    said = [str(one.get("protocolVersion")) for one in look.card.interfaces]
    require(all(_VERSION.fullmatch(version) for version in said), "Major.Minor", said)


async def has_whole_skills(look: Look) -> None:
    require_card(look.card)
    _require_none([flaw for one in look.card.skills for flaw in flaws_in(one, SKILL)])
    ids = [skill["id"] for skill in look.card.skills]
    require(len(ids) == len(set(ids)), "an id of its own for each skill", sorted(ids))


async def has_examples_that_fit(look: Look) -> None:
    require_card(look.card)
    said = [one for skill in look.card.skills for one in _examples_of(skill, look.card)]
    need(bool(said), "no example says arguments for which an extension gives the schema")
    for example, arguments, schema in said:
        faults = [error.message for error in validator_for(schema)(schema).iter_errors(arguments)]
        require(not faults, "an example that its schema takes", f"{example}: {'; '.join(faults)}")


def _examples_of(skill: Mapping[str, Any], card: Card) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    """The examples that say arguments: as they stand, their arguments, and the schema of those, if it is one."""
    schema = card.schema_of(str(skill.get("id")))
    if schema is None or not _is_schema(schema):
        return
    for example in skill.get("examples") or ():
        try:
            said = json.loads(example)
        except ValueError:
            continue
        if isinstance(said, dict) and "arguments" in said:
            yield example, said["arguments"], schema


def _is_schema(schema: Mapping[str, Any]) -> bool:
    try:
        validator_for(schema).check_schema(schema)
    except SchemaError:
        return False
    return True


async def has_whole_security(look: Look) -> None:
    require_card(look.card)
    schemes = look.card.fields.get("securitySchemes") or {}
    _require_none([flaw for name, one in schemes.items() for flaw in flaws_in(one, SCHEME, name)])
    for one in look.card.fields.get("securityRequirements") or ():
        unknown = set(one.get("schemes") or {}) - set(schemes)
        require(not unknown, "requirements that name schemes of the card", sorted(unknown))


async def has_whole_signatures(look: Look) -> None:
    require_card(look.card)
    signatures = look.card.fields.get("signatures")
    need(bool(signatures), "the card is not signed")
    for one in signatures or ():
        _require_none(list(flaws_in(one, SIGNATURE)))
        header = _protected(one["protected"])
        require({"alg", "kid"} <= set(header), "alg and kid in the protected header", header)


def _protected(text: str) -> Mapping[str, Any]:
    try:
        header = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except ValueError:
        header = None
    require(isinstance(header, dict), "a base64url-encoded JSON object", text)
    return dict(header)


async def says_how_long_it_lasts(look: Look) -> None:
    require_card(look.card)
    said = look.card.answer.headers.get("cache-control", "")
    require("max-age=" in said, "Cache-Control with max-age", said or "no Cache-Control")


async def has_an_etag(look: Look) -> None:
    require_card(look.card)
    require("etag" in look.card.answer.headers, "an ETag", "none")


async def answers_304(look: Look) -> None:
    require_card(look.card)
    etag = look.card.answer.headers.get("etag")
    need(bool(etag), "the card has no ETag")
    again = await look.again(If_None_Match=str(etag))
    require(again.status == 304 and not again.body, "304 without a body", again.shown())
    other = await look.again(If_None_Match='"another"')
    require(other.status == 200, "200 for another ETag", other.shown())


def _check(
    check_id: str, spec: str, sentence: str, run: Any, level: Level = Level.MUST, *needs: Need
) -> Check:
    return Check(check_id, Section.CARD, spec, level, sentence, run, needs, ONCE)


CHECKS: Final = (
    _check("card-served", "8.2", "The card is served at the well-known path, as JSON", is_served),
    _check("card-required-fields", "4.4.1", "The card has every required field", has_required_fields),
    _check(
        "card-full-arrays", "5.7", "The card's required arrays have at least one element", has_full_arrays
    ),
    _check("card-types", "4.4.1", "The card's fields have the types of the proto", has_the_types),
    _check("card-camel-case", "5.5", "The card's fields are in camelCase", has_camel_case),
    _check(
        "card-interfaces",
        "4.4.6",
        "Each interface has an absolute URL, its binding and its version",
        has_whole_interfaces,
    ),
    _check(
        "card-versions", "3.6", "Versions are Major.Minor, without a patch", has_short_versions, Level.SHOULD
    ),
    _check(
        "card-skills", "4.4.5", "Each skill has its required fields and an id of its own", has_whole_skills
    ),
    _check(
        "card-examples",
        "4.4.5",
        "Each example of a skill fits the schema that an extension gives for its arguments",
        has_examples_that_fit,
        Level.SHOULD,
        Need.EXAMPLES,
    ),
    _check(
        "card-security",
        "4.5",
        "Each security scheme is exactly one of the five, and each requirement names one of them",
        has_whole_security,
    ),
    _check(
        "card-signatures",
        "8.4.2",
        "Each signature has a protected header with alg and kid",
        has_whole_signatures,
        Level.MUST,
        Need.SIGNATURES,
    ),
    _check(
        "card-max-age",
        "8.6.1",
        "The card comes with Cache-Control: max-age",
        says_how_long_it_lasts,
        Level.SHOULD,
    ),
    _check("card-etag", "8.6.1", "The card comes with an ETag", has_an_etag, Level.SHOULD),
    _check(
        "card-not-modified",
        "8.6",
        "The card's ETag sent back is answered with 304",
        answers_304,
        Level.SHOULD,
        Need.ETAG,
    ),
)
