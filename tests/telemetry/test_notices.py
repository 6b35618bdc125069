"""Metrics of notices: tokens, logins, push notifications."""

from __future__ import annotations

from bridge.notices import (
    LoginNotice,
    Notice,
    PushAttempt,
    PushReceived,
    TokenNotice,
    WebhookAsked,
)
from bridge.telemetry.families import KnownNames, MetricFamily, text_of
from bridge.telemetry.metrics import HopMetrics, families_of
from tests.telemetry.test_metrics import NAMES, Numbers, numbers_in, one

TOKENS = "mcp_a2a_token_request_duration_seconds"
NOTICES: list[Notice] = [
    TokenNotice("far", "client_credentials", "given", 0.3),
    TokenNotice("far", "client_credentials", "given", 40.0),
    TokenNotice("far", "token_exchange", "refused", 0.1, "ann"),
    TokenNotice("made up", "refresh_token", "failed", 0.1),
    LoginNotice("far", "begun", "ann"),
    LoginNotice("far", "stored", "ann"),
    LoginNotice("", "refused"),
    PushAttempt("face", "delivered", "task-1"),
    PushAttempt("face", "delivered", "task-2"),
    PushAttempt("gone", "given_up", "task-3"),
    PushReceived("far", "taken", 204),
    PushReceived("", "refused", 404),
    WebhookAsked("face", "ann", "task-1", "hooks.example:443"),
]


def read(metrics: HopMetrics) -> Numbers:
    """All numbers of a reading."""
    return numbers_in(text_of(all_of(metrics)))


def all_of(metrics: HopMetrics) -> list[MetricFamily]:
    """All families of a reading."""
    return [*families_of(metrics.read()), *metrics.counters()]


def told(names: list[KnownNames]) -> HopMetrics:
    """Metrics that got all notices, with these as the last names."""
    metrics = HopMetrics(lambda: names[-1])
    for notice in NOTICES:
        metrics.noticed(notice)
    return metrics


def test_tokens_logins_and_notifications_are_counted_by_peer_and_outcome() -> None:
    found = read(told([NAMES]))
    assert one(found, f"{TOKENS}_count", peer="far", grant="client_credentials", outcome="given") == 2
    assert (
        one(found, f"{TOKENS}_bucket", peer="far", grant="client_credentials", outcome="given", le="0.5") == 1
    )
    assert one(found, f"{TOKENS}_count", peer="far", grant="token_exchange", outcome="refused") == 1
    assert one(found, "mcp_a2a_logins_total", peer="far", event="stored") == 1
    assert one(found, "mcp_a2a_logins_total", peer="", event="refused") == 1
    assert one(found, "a2a_push_attempts_total", face="face", outcome="delivered") == 2
    assert one(found, "a2a_push_received_total", peer="far", outcome="taken") == 1
    assert one(found, "a2a_push_received_total", peer="other", outcome="refused") == 1


def test_no_principal_and_no_task_is_a_label() -> None:
    text = text_of(all_of(told([NAMES]))).decode()
    assert not any(word in text for word in ("ann", "task-", "made up", "gone"))


def test_what_a_reload_removes_is_not_counted_any_more() -> None:
    names = [NAMES]
    metrics = told(names)
    names.append(KnownNames())
    assert {dict(labels).get("peer") for _, labels in read(metrics)} <= {None, "", "other"}
    assert not any(dict(labels).get("face") == "face" for _, labels in read(metrics))
