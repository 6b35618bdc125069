"""Handles: they come back as they were, and nothing else opens."""

from __future__ import annotations

import random
import stat
import string
import threading
from pathlib import Path
from uuid import UUID

import pytest

from bridge.errors import UsageError
from bridge.seal import (
    LIFETIME_SECONDS,
    MAX_HANDLE_CHARACTERS,
    Handle,
    HandleBinding,
    HandleError,
    HandlePurpose,
    HandleTooLongError,
    RecordSeal,
    Seal,
    SealedRecordError,
    agent_mark,
    key_in,
    request_digest,
)

pytestmark = pytest.mark.proves("map-handles")

KEY, OTHER_KEY = b"k" * 32, b"o" * 40
NOW = 1_800_000_000
UUID_ID = "01890a5d-ac96-774b-bcce-b302099a8057"
BINDING = HandleBinding(HandlePurpose.FOLLOW_UP, "alice")


def handle(*ids: str, agent: str = "research", expires_seconds: int = NOW + 60) -> Handle:
    return Handle(agent_mark(agent), ids, expires_seconds)


def random_id(chance: random.Random) -> str:
    uuid = UUID(int=chance.getrandbits(128))
    letters = "abcXYZ019-_/ é漢\U0001f600\0"
    return chance.choice(
        [str(uuid), uuid.hex, str(uuid).upper(), f"{{{uuid}}}", uuid.urn]
        + [f"{version}-{uuid.hex}-{uuid.hex[:16]}-01" for version in ("00", "01", "0é")]
        + ["".join(chance.choices(letters, k=chance.randrange(30))) for _ in range(3)]
    )


@pytest.mark.parametrize("seed", range(50))
def test_a_handle_opens_as_it_was_sealed(seed: int) -> None:
    chance = random.Random(seed)
    ids = tuple(random_id(chance) for _ in range(chance.randrange(4)))
    sealed = handle(*ids, expires_seconds=chance.randrange(NOW + 1, 2**32))
    binding = HandleBinding(
        chance.choice(list(HandlePurpose)), random_id(chance), chance.randbytes(chance.randrange(40))
    )
    text = Seal([KEY]).seal(sealed, binding)
    assert Seal([KEY]).open(text, binding, NOW) == sealed


def test_a_handle_to_a_task_is_short_and_safe_in_urls() -> None:
    text = Seal([KEY]).seal(handle(UUID_ID), BINDING)
    assert len(text) <= 100
    assert text.replace("-", "").replace("_", "").isalnum()
    assert text.isascii()


def test_a_handle_is_never_longer_than_an_id_may_be() -> None:
    seal = Seal([KEY])
    longest = max(length for length in range(512) if _fits(seal, "x" * length))
    assert longest > 300
    assert len(seal.seal(handle("x" * longest), BINDING)) <= MAX_HANDLE_CHARACTERS
    for length in (longest + 1, 70_000):
        with pytest.raises(HandleTooLongError, match="too long"):
            seal.seal(handle("x" * length), BINDING)


def _fits(seal: Seal, task_id: str) -> bool:
    try:
        seal.seal(handle(task_id), BINDING)
    except HandleTooLongError:
        return False
    return True


def refusal_of(
    text: str, binding: HandleBinding = BINDING, *, now: float = NOW, keys: tuple[bytes, ...] = (KEY,)
) -> str:
    with pytest.raises(HandleError) as caught:
        Seal(keys).open(text, binding, now)
    return str(caught.value)


def test_a_handle_with_any_one_bit_flipped_is_refused() -> None:
    text = Seal([KEY]).seal(handle(UUID_ID), BINDING)
    for place, char in enumerate(text):
        for bit in range(8):
            refusal_of(text[:place] + chr(ord(char) ^ 1 << bit) + text[place + 1 :])


def test_a_handle_opens_only_for_its_purpose() -> None:
    for purpose in HandlePurpose:
        text = Seal([KEY]).seal(handle(UUID_ID), HandleBinding(purpose, "alice"))
        for other in set(HandlePurpose) - {purpose}:
            refusal_of(text, HandleBinding(other, "alice"))


def test_a_handle_opens_only_for_its_principal_and_its_request() -> None:
    asked = request_digest("pay", {"b": 1, "a": 2})
    text = Seal([KEY]).seal(handle(UUID_ID), HandleBinding(HandlePurpose.REQUEST_STATE, "alice", asked))
    again = HandleBinding(HandlePurpose.REQUEST_STATE, "alice", request_digest("pay", {"a": 2, "b": 1}))
    assert Seal([KEY]).open(text, again, NOW).ids == (UUID_ID,)
    other = request_digest("pay", {"a": 2, "b": 2})
    shifted = HandleBinding(HandlePurpose.REQUEST_STATE, "alice" + chr(asked[0] & 127), asked[1:])
    for binding in (
        HandleBinding(HandlePurpose.REQUEST_STATE, "bob", asked),
        HandleBinding(HandlePurpose.REQUEST_STATE, "alice", other),
        HandleBinding(HandlePurpose.REQUEST_STATE, "alice"),
        shifted,
    ):
        refusal_of(text, binding)


def test_forged_foreign_expired_and_misused_handles_are_answered_alike() -> None:
    text = Seal([KEY]).seal(handle(UUID_ID), BINDING)
    answers = {
        refusal_of(text, now=NOW + 60),
        refusal_of(text, keys=(OTHER_KEY,)),
        refusal_of(text, HandleBinding(HandlePurpose.CONTEXT, "alice")),
        refusal_of(text, HandleBinding(HandlePurpose.FOLLOW_UP, "bob")),
        *(
            refusal_of(forged)
            for forged in ("", "A", "AAAA", "é", text + "=", text[:-1], text + "A", f" {text}")
        ),
        refusal_of("A" * 100_000),
    }
    assert len(answers) == 1


def test_the_first_key_seals_and_all_open() -> None:
    old, new = Seal([KEY]), Seal([OTHER_KEY, KEY])
    assert new.open(old.seal(handle(UUID_ID), BINDING), BINDING, NOW).ids == (UUID_ID,)
    refusal_of(new.seal(handle(UUID_ID), BINDING))


@pytest.mark.parametrize("keys", [[], [b"short"], [KEY, b""]])
def test_a_ring_without_proper_keys_is_refused(keys: list[bytes]) -> None:
    with pytest.raises(UsageError, match="at least 32 bytes"):
        Seal(keys)


def test_every_purpose_has_a_lifetime() -> None:
    assert set(LIFETIME_SECONDS) == set(HandlePurpose)


@pytest.mark.proves("mcp25-tokens-kept", "mcp26-tokens-kept")
@pytest.mark.parametrize("length", range(3))
def test_a_sealed_object_opens_from_one_text_alone(length: int) -> None:
    """Base64 has other texts of the same bytes: with padding, of the other alphabet, or with bits that say nothing."""
    seal, value = RecordSeal([KEY], "test"), {"a": "x" * length}
    for _ in range(20):
        text = seal.seal_json(value, b"place")
        assert seal.open_json(text, b"place") == value
        last = (text[:-1] + letter for letter in string.ascii_letters + string.digits + "-_")
        padded, other = text + "=" * (-len(text) % 4), text.replace("-", "+").replace("_", "/")
        for wrong in {padded, other, f"{text}=", f"{text}\n", *last} - {text}:
            with pytest.raises(SealedRecordError):
                seal.open_json(wrong, b"place")


def test_a_key_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "bridge"
    key = key_in(folder)
    assert key_in(folder) == key
    assert [path.name for path in folder.iterdir()] == ["handle.key"]
    assert stat.S_IMODE((folder / "handle.key").stat().st_mode) == 0o600
    assert key_in(tmp_path / "other") != key
    Seal([key])


def test_processes_that_start_together_get_the_same_key(tmp_path: Path) -> None:
    keys: list[bytes] = []
    start = threading.Barrier(8)

    def take() -> None:
        start.wait()
        keys.append(key_in(tmp_path))

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(keys) == 8
    assert len(set(keys)) == 1


def test_a_key_that_is_none_or_is_open_to_everyone_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "handle.key"
    path.write_text("short")
    path.chmod(0o600)
    with pytest.raises(UsageError, match="holds no key"):
        key_in(tmp_path)
    path.write_text("x" * 64)
    path.chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        key_in(tmp_path)
    with pytest.raises(UsageError, match="cannot keep the key"):
        key_in(path)
