"""The header that marks a request that another replica passed on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.replicas.passed_requests import (
    VALID_SECONDS,
    AcceptedRequest,
    NotPassedError,
    PassedHeaders,
    PassedRequest,
)
from bridge.replicas.proofs import Proofs

KEY, OTHER = b"k" * 32, b"o" * 32
REQUEST = PassedRequest("POST", "/mcp/face", "a-session")
NOW = 1_000_000.0


def made(*, key: bytes = KEY, epoch: int = 7, request: PassedRequest = REQUEST, now: float = NOW) -> str:
    """The header of a passed request with this body."""
    return PassedHeaders(Proofs([key])).header(epoch, request, b"body", now)


def refusal_of(header: str, request: PassedRequest = REQUEST, now: float = NOW) -> str:
    """Why a header is refused."""
    with pytest.raises(NotPassedError) as refused:
        PassedHeaders(Proofs([KEY])).accept(header, request, now)
    return str(refused.value)


def test_a_passed_request_names_its_receiver_and_its_body() -> None:
    hop = PassedHeaders(Proofs([KEY])).accept(made(), REQUEST, NOW)
    assert hop == AcceptedRequest(7, hop.body_digest)
    assert hop.fits(b"body")
    assert not hop.fits(b"another")


@pytest.mark.parametrize(
    "request_made",
    [
        replace(REQUEST, verb="DELETE"),
        replace(REQUEST, path="/mcp/fac"),
        replace(REQUEST, session="another"),
        PassedRequest("POST", "/mcp/facea-", "session"),
    ],
)
def test_a_header_is_valid_for_one_request(request_made: PassedRequest) -> None:
    assert refusal_of(made(request=request_made)) == "it was not made with our keys for this request"


def test_the_proof_covers_every_part_of_the_header() -> None:
    for place, part in enumerate(made().split(".")):
        parts = made().split(".")
        parts[place] = f"{int(part, 16) ^ 1:0{len(part)}x}" if place > 1 else str(int(part) + 1)
        assert refusal_of(".".join(parts)) == "it was not made with our keys for this request"


@pytest.mark.parametrize(
    "header", ["", "refused", "1.2.3.4.5", f"{made()} ", f"{made()},{made()}", f"-{made()}"]
)
def test_a_malformed_header_is_refused(header: str) -> None:
    assert refusal_of(header) == "it is malformed"


def test_a_header_is_valid_thirty_seconds_before_and_after_its_time() -> None:
    for away in (-VALID_SECONDS, 0, VALID_SECONDS):
        PassedHeaders(Proofs([KEY])).accept(made(), REQUEST, NOW + away)
    for away in (-VALID_SECONDS - 1, VALID_SECONDS + 1):
        assert refusal_of(made(), now=NOW + away) == "it was made 31 s from now"


def test_a_valid_header_is_accepted_only_once() -> None:
    taken, header = PassedHeaders(Proofs([KEY])), made()
    taken.accept(header, REQUEST, NOW - VALID_SECONDS)
    for now in (NOW, NOW + VALID_SECONDS):
        with pytest.raises(NotPassedError, match="it was used before"):
            taken.accept(header, REQUEST, now)


def test_old_nonces_are_forgotten_and_their_number_is_bounded() -> None:
    taken = PassedHeaders(Proofs([KEY]), max_nonces=2)
    for _ in range(2):
        taken.accept(made(), REQUEST, NOW)
    with pytest.raises(NotPassedError, match="too many passed requests"):
        taken.accept(made(), REQUEST, NOW)
    later = NOW + 2 * VALID_SECONDS + 1
    taken.accept(made(now=later), REQUEST, later)


def test_any_of_our_keys_is_accepted_and_the_first_makes_the_proof() -> None:
    PassedHeaders(Proofs([OTHER, KEY])).accept(made(), REQUEST, NOW)
    assert refusal_of(made(key=OTHER)) == "it was not made with our keys for this request"
