"""Cards of agents with pinned keys: which are accepted, which are refused, and when a stored card stays valid."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from bridge.a2a.client.agent_card import CardSource, FoundCard, UnverifiedCardError, fetch_card
from bridge.a2a.client.card_pins import CardPins, KeyFile
from bridge.a2a.client.http_cache import DistrustedError
from bridge.a2a.server.card_keys import CardKey
from bridge.a2a.wire.canonical_card import CardForm
from bridge.a2a.wire.rest import CARD_PATH
from bridge.errors import PeerError
from bridge.identity.callers.issuers import IssuerPlace
from bridge.identity.callers.key_sets import KeySource
from tests.support.limits import card_bounds
from tests.support.principals import LIMITS
from tests.support.signed_cards import CARD, key, signed

pytestmark = pytest.mark.proves("a2a-8.4.3-verified")

ROOT = "https://agent.example.com"
JWKS = "https://keys.example.com/jwks.json"
STRICT, SDK = CardForm.STRICT, CardForm.SDK


class Signer:
    """An agent with a card and a key set, as an ASGI application."""

    def __init__(self) -> None:
        self.card: dict[str, Any] = signed(CARD, key())
        self.keys: list[CardKey] | None = [key()]
        self.asked: list[str] = []
        self.http = httpx2.AsyncClient(transport=httpx2.ASGITransport(self))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        self.asked.append(str(request.url))
        answer: Response
        if request.url.path == CARD_PATH:
            answer = JSONResponse(self.card, headers={"Cache-Control": "no-cache"})
        elif request.url.path == "/jwks.json" and self.keys is not None:
            answer = JSONResponse({"keys": [dict(one.public) for one in self.keys]})
        else:
            answer = Response(status_code=404)
        await answer(scope, receive, send)

    def at_url(self, form: CardForm = STRICT, *, soon: bool = True) -> CardPins:
        """Pins of its key set, which is fetched again at once for an unknown key if it is to be `soon`."""
        limits = LIMITS.having(unknown_key_seconds=0) if soon else LIMITS
        place = IssuerPlace(JWKS, JWKS, allow_private=True)
        return CardPins(KeySource("x", place, self.http, limits, section="agents"), form, JWKS.encode)

    def source(self, pins: CardPins | None, folder: Path | None = None) -> CardSource:
        return CardSource(self.http, ROOT, folder, card_bounds(), pins=pins)


@pytest.fixture
async def signer() -> AsyncIterator[Signer]:
    """A signer, and the client that reaches it."""
    made = Signer()
    async with made.http:
        yield made


def in_file(folder: Path, *keys: CardKey, form: CardForm = STRICT) -> CardPins:
    """Pins in a file."""
    path = folder / "keys.json"
    path.write_text(json.dumps({"keys": [dict(one.public) for one in keys]}))
    file = KeyFile(path)
    return CardPins(file, form, file.text_if_any)


async def test_a_card_with_a_pinned_signature_is_taken_by_a_url_and_by_a_file(
    signer: Signer, tmp_path: Path
) -> None:
    by_url = await signer.source(signer.at_url()).refresh()
    by_file = await signer.source(in_file(tmp_path, key())).refresh()
    assert by_url == by_file == await fetch_card(signer.http, ROOT, pins=signer.at_url())
    assert by_url.proof is not None
    assert (by_url.proof.key_id, by_url.proof.form) == (key().signing.id, STRICT)
    assert [list(one.schemes) for one in by_url.card.security_requirements or ()] == [["bearer"], ["oauth"]]
    assert json.loads(by_url.text) == signer.card


async def test_a_card_without_a_pinned_signature_is_refused_whatever_it_says_of_its_keys(
    signer: Signer,
) -> None:
    signer.card = signed(CARD, key(number=1))
    with pytest.raises(UnverifiedCardError, match="is not trusted"):
        await signer.source(signer.at_url()).refresh()
    assert {*signer.asked} == {f"{ROOT}{CARD_PATH}", JWKS}
    signer.card = CARD
    with pytest.raises(UnverifiedCardError, match=r"the card at https://agent\.example\.com.* is not signed"):
        await signer.source(signer.at_url()).refresh()


async def test_only_the_signed_part_of_a_card_in_the_form_of_the_sdks_is_used(signer: Signer) -> None:
    plain = {**CARD, "securityRequirements": [], "securitySchemes": {}, "skills": CARD["skills"][1:]}
    forged = signed(plain, key())
    signer.card = {
        **forged,
        "securityRequirements": [{"schemes": {"evil": {"list": []}}}],
        "securitySchemes": {"evil": {"mtlsSecurityScheme": {}}},
        "url": "https://evil.example.com",
    }
    with pytest.raises(UnverifiedCardError, match="does not fit the card"):
        await signer.source(signer.at_url()).refresh()
    found = await signer.source(signer.at_url(SDK)).refresh()
    assert (found.card.security_requirements, found.card.security_schemes) == (None, None)
    assert found.card.model_extra == {}
    assert found.proof is not None
    assert {"url", "securityRequirements", "securitySchemes"} < {*found.proof.outside}
    assert found.deviations == ()


async def test_a_key_set_is_reread_so_new_keys_count_and_removed_keys_do_not(
    signer: Signer,
) -> None:
    source = signer.source(signer.at_url())
    assert await source.refresh() is await source.refresh()
    signer.card, signer.keys = signed(CARD, key("EdDSA")), [key("EdDSA")]
    found = await source.refresh()
    assert found.proof is not None
    assert found.proof.key_id == key("EdDSA").signing.id
    signer.card = signed(CARD, key())
    with pytest.raises(UnverifiedCardError):
        await source.refresh()
    assert source.cached() is None


async def test_many_forged_cards_do_not_cause_as_many_key_requests(signer: Signer) -> None:
    source = signer.source(signer.at_url(soon=False))
    signer.card = signed(CARD, key(number=1))
    for _ in range(5):
        with pytest.raises(UnverifiedCardError):
            await source.refresh()
    assert signer.asked.count(JWKS) == 1


async def test_while_the_keys_are_unreachable_a_verified_card_stays_and_no_new_card_is_taken(
    signer: Signer, tmp_path: Path
) -> None:
    source = signer.source(signer.at_url(), tmp_path)
    before = await source.refresh()
    signer.keys = None
    again = signer.source(signer.at_url(), tmp_path)
    with pytest.raises(PeerError, match="the keys of its signer are not known yet") as refused:
        await again.refresh()
    assert not isinstance(refused.value, DistrustedError)
    assert again.cached() == before


async def test_a_kept_card_counts_only_for_the_keys_that_have_verified_it(
    signer: Signer, tmp_path: Path
) -> None:
    pins = in_file(tmp_path, key())
    found = await signer.source(pins, tmp_path / "kept").refresh()

    def kept(pins: CardPins | None) -> FoundCard | None:
        return signer.source(pins, tmp_path / "kept").cached()

    assert kept(in_file(tmp_path, key())) == found
    assert kept(None) is None
    assert kept(in_file(tmp_path, key(), form=SDK)) is None
    assert kept(in_file(tmp_path, key("EdDSA"))) is None
    signer.card = CARD
    await signer.source(None, tmp_path / "kept").refresh()
    assert kept(None) is not None
    assert kept(in_file(tmp_path, key())) is None


async def test_a_file_without_usable_keys_is_an_error(signer: Signer, tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    pins = CardPins(KeyFile(path), STRICT, KeyFile(path).text_if_any)
    for text, words in (
        (None, "cannot be read: No such file"),
        ("{", "it is not JSON"),
        ('{"keys": []}', "no public key for signatures"),
        ('{"keys": [{"kty": "oct", "k": "AAAA", "kid": "x"}]}', "no public key for signatures"),
        (" " * (1024 * 1024 + 1), "at most 1048576 bytes"),
    ):
        if text is not None:
            path.write_text(text)
        with pytest.raises(PeerError, match=words):
            await signer.source(pins).refresh()


async def test_watchers_of_a_card_learn_that_it_is_no_longer_trusted(signer: Signer) -> None:
    source = CardSource(
        signer.http, ROOT, None, card_bounds(min_seconds=0.01, max_seconds=0.01), pins=signer.at_url()
    )
    heard: list[str] = []

    async def changed(found: FoundCard) -> None:
        heard.append(found.card.name)
        signer.card = CARD
        await anyio.lowlevel.checkpoint()

    def distrusted(fault: DistrustedError) -> None:
        heard.append(str(fault))
        watching.cancel()

    with anyio.fail_after(30), anyio.CancelScope() as watching:
        await source.watch(changed, distrusted)
    assert heard == [CARD["name"], f"the card at {ROOT}{CARD_PATH} is not signed"]
