"""What signs the cards of a plan."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bridge.a2a.server.card_keys import CardKey, card_key, card_signer
from bridge.a2a.server.signed_cards import CardSigner
from bridge.assembly.plan import Plan
from bridge.assembly.routes import KEYS_PATH
from bridge.errors import UsageError
from bridge.local.private_files import read_secret


def card_signer_of(plan: Plan) -> CardSigner | None:
    """What signs the cards of a plan; None if nothing does.

    Raises:
        UsageError: a key cannot sign cards, or stands there twice.
    """
    if plan.signing is None:
        return None
    keys = []
    for number, key in _keys_in(plan):
        if isinstance(key, str):
            raise UsageError(f"bridge.card_keys[{number}]: {key}")
        keys.append(key)
    root = plan.place.public_url
    return card_signer(keys, plan.signing.forms, f"{root}{KEYS_PATH}" if root else None)


def card_key_faults(plan: Plan) -> Iterator[tuple[int, str]]:
    """Yield the keys of a plan that cannot sign cards, by their number, and why."""
    for number, key in _keys_in(plan):
        if isinstance(key, str):
            yield number, key


def _keys_in(plan: Plan) -> Iterator[tuple[int, CardKey | str]]:
    """Yield each key, or why it cannot sign."""
    if plan.signing is None:
        return
    seen: set[str] = set()
    others = {_text_of(key) for key in plan.place.keys}
    for number, pem in enumerate(plan.signing.keys):
        if pem.strip() in others:
            yield number, "it is also one of `keys`, from which the keys of notifications are derived"
            continue
        try:
            key = card_key(pem)
        except UsageError as exc:
            yield number, str(exc)
            continue
        yield number, "the key appears twice" if key.signing.id in seen else key
        seen.add(key.signing.id)


def _text_of(key: Path | str) -> str:
    """The text of a key that seals handles; empty if its file is not there yet."""
    if isinstance(key, str):
        return key.strip()
    try:
        return read_secret(key)[0].decode(errors="replace").strip()
    except (OSError, UsageError):
        return ""
