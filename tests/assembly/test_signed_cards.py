"""A bridge that signs its cards: what readers verify, and what a changed configuration changes."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.utils.signing import create_signature_verifier
from jwt import PyJWKSet

from bridge.a2a.server.card_keys import card_key, new_card_key
from bridge.a2a.wire.canonical_card import CardForm, CardProof
from bridge.a2a.wire.card_signatures import verified
from bridge.assembly.card_signing import card_key_faults, card_signer_of
from bridge.assembly.plan import (
    CardSigningPlan,
    OfferedPlan,
    Plan,
    ProcessPlan,
    PushPlan,
    RemotePlan,
    SignerPlan,
)
from bridge.assembly.plan_from_file import plan_from_file
from bridge.config.load import load
from bridge.errors import PeerError, UsageError
from bridge.identity.callers.json_web_tokens import keys_in
from tests.assembly.test_admission import ADA, bearer, guarded
from tests.assembly.test_bridge import Live, agent
from tests.support.files import written
from tests.support.running import VERSION, profile_with
from tests.support.signed_cards import BOTH, pem

pytestmark = pytest.mark.outside

CARD = "/agents/a/.well-known/agent-card.json"
KEYS = "/.well-known/jwks.json"
SIGNING = CardSigningPlan((pem(),), BOTH)


async def proof_of(there: Live, card: Any) -> CardProof:
    """Who has signed a card, by the keys that the bridge publishes."""
    return verified(card, keys_in(await there.json(KEYS), 100), CardForm.STRICT)


@pytest.mark.parametrize("legacy", [True, False], ids=["merged", "of-1.0"])
async def test_a_card_is_signed_for_strict_readers_and_for_a2a_sdk(legacy: bool, tmp_path: Path) -> None:
    profile = profile_with(card={"legacy_card": legacy})
    async with guarded(tmp_path, ADA, signing=SIGNING, published={"a": agent("one", profile=profile)}) as (
        there,
        _,
    ):
        card = await there.json(CARD)
        proof = await proof_of(there, card)
        assert proof.inside["securityRequirements"] == [{"schemes": {"bearer": {}}}]
        assert ("url" in proof.outside) is legacy
        published = PyJWKSet.from_dict(await there.json(KEYS))
        verifier = create_signature_verifier(lambda kid, _: published[kid or ""].key, ["ES256"])
        verifier(parse_agent_card(copy.deepcopy(card)))
        listed = await there.client.get(f"{there.url}/agents", headers=bearer(ADA))
        assert listed.json()["agents"][0]["card"]["signatures"] == card["signatures"]


async def test_an_extended_card_is_signed_for_its_reader_and_signed_once(tmp_path: Path) -> None:
    async with guarded(tmp_path, ADA, signing=SIGNING) as (there, _):
        url = f"{there.url}/agents/a/extendedAgentCard"
        headers = {**VERSION, **bearer(ADA)}
        first, second = [(await there.client.get(url, headers=headers)).json() for _ in range(2)]
        assert first == second
        assert (await proof_of(there, first)).key_id == card_key(pem()).signing.id


async def test_the_signature_names_the_key_set_where_the_public_address_is_known(tmp_path: Path) -> None:
    place = ProcessPlan(public_url="https://b.example.com", state=tmp_path, cache=tmp_path)
    async with guarded(tmp_path, signing=SIGNING, place=place) as (there, _):
        card = parse_agent_card(await there.json(CARD))
        asked: list[str | None] = []

        def keys(kid: str | None, jku: str | None) -> Any:
            asked.append(jku)
            return card_key(pem()).signing.private.public_key()

        create_signature_verifier(keys, ["ES256"])(card)
        assert set(asked) == {f"https://b.example.com{KEYS}"}


async def test_a_changed_key_signs_from_then_on_and_the_card_is_told_to_have_changed(tmp_path: Path) -> None:
    async with guarded(tmp_path, signing=SIGNING) as (there, _):
        before = await there.client.get(f"{there.url}{CARD}")
        tag = before.headers["etag"]
        assert tag.startswith('W/"')
        again = await there.client.get(f"{there.url}{CARD}", headers={"if-none-match": tag})
        assert again.status_code == 304
        new = new_card_key("EdDSA")
        await there.apply(signing=replace(SIGNING, keys=(new, pem())))
        after = await there.client.get(f"{there.url}{CARD}", headers={"if-none-match": tag})
        assert after.status_code == 200
        kids = [card_key(key).signing.id for key in (new, pem())]
        assert [key["kid"] for key in (await there.json(KEYS))["keys"]] == kids
        assert (await proof_of(there, after.json())).key_id == kids[0]
        await there.apply(signing=None)
        assert "signatures" not in await there.json(CARD)
        await there.json(KEYS, status=404)


async def test_replicas_give_one_card_one_tag_though_each_signs_it_for_itself(tmp_path: Path) -> None:
    place = ProcessPlan(public_url="https://b.example.com", state=tmp_path, cache=tmp_path)
    async with (
        guarded(tmp_path / "1", signing=SIGNING, place=place) as (one, _),
        guarded(tmp_path / "2", signing=SIGNING, place=place) as (two, _),
    ):
        answers = [await there.client.get(f"{there.url}{CARD}") for there in (one, two)]
        first, second = [answer.json() for answer in answers]
        assert answers[0].headers["etag"] == answers[1].headers["etag"]
        assert first["signatures"] != second["signatures"]
        assert await proof_of(one, first) == await proof_of(two, second)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (("none",), r"bridge\.card_keys\[0\]: it holds no private key in PEM"),
        ((pem(), pem()), r"bridge\.card_keys\[1\]: the key appears twice"),
    ],
)
async def test_a_key_that_cannot_sign_is_refused_and_the_last_ones_go_on(
    keys: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    async with guarded(tmp_path, signing=SIGNING) as (there, _):
        with pytest.raises(UsageError, match=words):
            await there.apply(signing=replace(SIGNING, keys=keys))
        assert (await proof_of(there, await there.json(CARD))).form is CardForm.STRICT


def test_a_key_that_seals_handles_is_none_for_cards_wherever_it_comes_from(tmp_path: Path) -> None:
    (tmp_path / "card.pem").write_text(pem())
    for key in (pem(), tmp_path / "card.pem"):
        place = ProcessPlan(keys=(key,), state=tmp_path, cache=tmp_path)
        plan = Plan(profile_with(), place, signing=SIGNING)
        assert list(card_key_faults(plan)) == [
            (0, "it is also one of `keys`, from which the keys of notifications are derived")
        ]
        with pytest.raises(UsageError, match="is also one of `keys`"):
            card_signer_of(plan)


def test_what_a_file_says_of_keys_is_in_its_plan(tmp_path: Path) -> None:
    (tmp_path / "card.pem").write_text(pem())
    agents = """
        [bridge]
        card_keys = [{ file = "card.pem" }]
        card_forms = ["strict"]
        [agents.one]
        card = "https://one.example.com"
        signed_by = { jwks = "https://keys.example.com/jwks.json" }
        [agents.two]
        card = "https://two.example.com"
        signed_by = { file = "keys.json", form = "sdk" }
        [agents.three]
        card = "https://three.example.com"
        """
    plan = plan_from_file(load(written(tmp_path, agents)))
    assert plan.signing == CardSigningPlan((pem().strip(),), (CardForm.STRICT,))
    signers = {name: one.signed_by for name, one in plan.agents.items()}
    assert signers == {
        "one": SignerPlan("https://keys.example.com/jwks.json", CardForm.STRICT),
        "two": SignerPlan(tmp_path / "keys.json", CardForm.SDK),
        "three": None,
    }
    assert [one.credentials.sends_all for one in plan.agents.values()] == [False, True, False]


async def test_the_keys_of_cards_and_of_notifications_differ_and_stand_side_by_side(tmp_path: Path) -> None:
    place = ProcessPlan(push=PushPlan(), state=tmp_path, cache=tmp_path)
    async with guarded(tmp_path, signing=SIGNING, place=place) as (there, _):
        kids = [key["kid"] for key in (await there.json(KEYS))["keys"]]
        assert len(set(kids)) == 3
        assert kids[-1] == card_key(pem()).signing.id


async def test_a_card_is_signed_once_however_often_and_under_whatever_name_it_is_read(tmp_path: Path) -> None:
    place = ProcessPlan(hosts=frozenset({"one.test", "two.test"}), state=tmp_path, cache=tmp_path)
    async with guarded(tmp_path, signing=SIGNING, place=place) as (there, _):

        async def read(host: str) -> Any:
            return (await there.client.get(f"{there.url}{CARD}", headers={"host": host})).json()

        first = [await read(host) for host in ("one.test", "two.test")]
        assert first == [await read(host) for host in ("one.test", "two.test")]
        assert first[0]["signatures"] != first[1]["signatures"]


async def test_an_agent_with_pinned_keys_is_called_and_goes_down_once_its_card_is_not_theirs(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path / "signer", signing=SIGNING) as (signer, _):
        signed_by = SignerPlan(f"{signer.url}{KEYS}", CardForm.STRICT)
        agents = {"far": RemotePlan(f"{signer.url}/agents/a", signed_by=signed_by)}
        faces = {"team": OfferedPlan(("far",), profile_with())}
        async with (
            guarded(tmp_path / "reader", agents=agents, offered=faces) as (reader, _),
            reader.mcp("team") as host,
        ):
            [far] = reader.bridge.offered[0].remote_agents
            assert not (await host.call_tool("echo", {})).is_error
            await signer.apply(signing=None)
            with pytest.raises(PeerError, match="is not signed"):
                await far.refresh()
            state = (await reader.json("/readyz"))["mcp"]["team"]["agents"]["far"]
            assert state["why"].endswith("/agent-card.json is not signed")
            refused = await host.call_tool("echo", {})
            assert refused.is_error
            assert "is not signed" in str(refused.content)
            await signer.apply(signing=SIGNING)
            await far.refresh()
            assert not (await host.call_tool("echo", {})).is_error
