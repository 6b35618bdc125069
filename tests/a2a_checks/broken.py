"""Broken agents: a fault each, and the checks that have to catch it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import httpx2

from tests.a2a_checks import faults
from tests.a2a_checks.bindings import DELETE_PUSH
from tests.a2a_checks.hooks import SpoilPosted, as_it_came
from tests.a2a_checks.spoiling import Asked, Spoil
from tests.a2a_checks.table import BOTH, HTTP_JSON

CONTEXTS_FOR_TASKS: Final = faults.ContextsForTasks()
RPC_DETAILS: Final = {"rpc-error-data", "rpc-error-info", "rpc-bad-request"}
HTTP_DETAILS: Final = {"http-error-details", "http-error-info", "http-bad-request"}
WHOLLY: Final[Mapping[str, tuple[Spoil, set[str]]]] = {
    "details have no @type": (
        Spoil(answer=faults.untyped_details, bindings=BOTH),
        RPC_DETAILS | HTTP_DETAILS,
    ),
    "every reason is A2A's": (Spoil(answer=faults.one_domain, bindings=BOTH), {"error-domain"}),
    "Accept is not looked at": (
        Spoil(asked_headers={"accept": None}, bindings=(HTTP_JSON,)),
        {"http-accept"},
    ),
    "every version is 1.0": (
        Spoil(asked_headers={"a2a-version": "1.0"}),
        {"version-unknown", "version-everywhere", "version-older"},
    ),
    "ids become texts": (Spoil(answer=faults.ids_in_words), {"rpc-envelope"}),
    "updates name another context": (Spoil(event=faults.another_context), {"stream-ids"}),
    "no token at the end": (Spoil(answer=faults.no_empty_token), {"list-token"}),
    "roles of 0.3": (Spoil(answer=faults.older_roles), {"json-enums"}),
    "a field in snake_case": (Spoil(answer=faults.snake_case), {"json-camel-case"}),
    "times with an offset": (Spoil(answer=faults.other_zone), {"json-times", "json-milliseconds"}),
    "artifacts in every list": (Spoil(request=faults.all_artifacts), {"list-no-artifacts"}),
    "history in full": (
        Spoil(request=faults.whole_history),
        {"history-limit", "history-zero", "list-history"},
    ),
    "last words are not in the history": (
        Spoil(answer=faults.last_words_kept_back, bindings=BOTH),
        {"history-final"},
    ),
    "problem+json": (
        Spoil(headers={"content-type": "application/problem+json"}, bindings=BOTH),
        {"http-accept", "http-no-problem-json", "http-content-type", "rpc-content-type"},
    ),
    "no caching": (
        Spoil(headers={"etag": None, "cache-control": None}),
        {"card-max-age", "card-etag"},
    ),
    "only the first text is read": (
        Spoil(request=faults.first_text_alone),
        {"skill-among-texts", "skill-two-calls"},
    ),
    "output modes are passed over": (Spoil(request=faults.no_output_modes), {"output-json"}),
    "an example that does not fit": (Spoil(answer=faults.wrong_example), {"card-examples"}),
    "a card without skills": (Spoil(answer=faults.no_skills), {"card-full-arrays"}),
    "two skills with one id": (Spoil(answer=faults.same_skills), {"card-skills"}),
    "streams that are not declared": (Spoil(answer=faults.no_streaming), {"stream-undeclared"}),
    "an extension that is required in words only": (
        Spoil(answer=faults.needs_extension),
        {"ext-required", "ext-echo"},
    ),
    "push and extended card in words only": (
        Spoil(answer=faults.with_push),
        {"push-unknown-task", "push-unknown-config", "push-kept", "extended-declared"},
    ),
}
"""What is spoiled, how, and all that fails then."""

AMONG_OTHERS: Final[Mapping[str, tuple[Spoil, set[str]]]] = {
    "GetTask is wrapped": (
        Spoil(answer=faults.wrapped_task, bindings=BOTH),
        {"rpc-get-bare", "http-get", "json-required"},
    ),
    "streams close before the end": (
        Spoil(event=faults.no_terminal_event, bindings=BOTH),
        {"stream-closes", "subscribe-closes", "stream-adds-up"},
    ),
    "streams begin without the task": (
        Spoil(event=faults.no_first_task),
        {"stream-task-first", "subscribe-snapshot"},
    ),
    "events are lost": (Spoil(event=faults.no_artifact_event), {"stream-adds-up", "stream-artifacts"}),
    "parts are two things": (Spoil(answer=faults.two_contents), {"json-one-of"}),
    "contexts are replaced": (
        Spoil(answer=faults.context_of_its_own),
        {"turn-context-kept", "turn-context-goes-on"},
    ),
    "contexts are taken for tasks": (
        Spoil(request=CONTEXTS_FOR_TASKS.request, answer=CONTEXTS_FOR_TASKS.answer),
        {"turn-context-goes-on", "turn-context-question"},
    ),
    "messages get ids of the agent's own": (
        Spoil(request=faults.another_message_id),
        {"message-id-at-work", "turn-same-words", "turn-while-working"},
    ),
    "results are said twice": (
        Spoil(answer=faults.data_beside_texts, bindings=BOTH),
        {"output-once", "output-json"},
    ),
    "nothing blocks": (Spoil(request=faults.never_blocking), {"send-blocks", "send-waits-long"}),
    "nothing is refused": (
        Spoil(answer=faults.nothing_refused, ok=True, bindings=BOTH),
        {
            "cancel-ended",
            "cancel-twice",
            "card-not-modified",
            "extended-undeclared",
            "history-negative",
            "http-error-name",
            "http-error-status",
            "http-invalid-params",
            "http-parse-error",
            "list-page-size-range",
            "list-strange-time",
            "list-strange-token",
            "push-undeclared",
            "rpc-invalid-params",
            "rpc-invalid-request",
            "rpc-method-not-found",
            "send-required-fields",
            "send-to-ended",
            "stream-refusals",
            "stream-to-ended",
            "subscribe-ended",
            "subscribe-unknown",
            "turn-mismatch",
            "turn-no-client-ids",
            "version-any-case",
            "version-current",
            "version-declared",
            "version-patch",
        },
    ),
    "everything is refused": (
        Spoil(answer=faults.everything_refused, event=faults.every_event_refused, bindings=BOTH),
        {
            "cancel-open",
            "cancel-waiting",
            "ext-unasked",
            "ext-unknown",
            "http-send",
            "json-null",
            "json-unknown-fields",
            "rpc-cancel-bare",
            "rpc-send-wrapped",
            "rpc-stream-envelope",
            "same-over-both",
            "send-blocks-when-told",
            "send-immediately",
            "send-latest-state",
            "stream-dropped",
            "stream-message",
            "stream-one-of",
            "stream-type",
            "stream-updates",
        },
    ),
    "lists are empty": (
        Spoil(answer=faults.lists_nothing),
        {
            "list-after",
            "list-artifacts",
            "list-context",
            "list-empty-token",
            "list-fields",
            "list-pages",
            "list-status",
        },
    ),
    "last words are in the history twice": (
        Spoil(answer=faults.last_words_told_twice, bindings=BOTH),
        {"history-final", "history-limit"},
    ),
    "lists are backwards": (Spoil(answer=faults.lists_backwards), {"list-order"}),
    "lists are of everything": (
        Spoil(request=faults.no_filter),
        {"list-page-size", "list-page-size-range"},
    ),
    "tasks are odd": (
        Spoil(answer=faults.odd_tasks),
        {"json-agent-context", "json-artifact-ids", "json-base64", "json-types", "json-utf8"},
    ),
    "the card is odd": (
        Spoil(answer=faults.odd_card),
        {
            "card-camel-case",
            "card-interfaces",
            "card-required-fields",
            "card-security",
            "card-signatures",
            "card-types",
            "card-versions",
        },
    ),
    "all tasks are one": (
        Spoil(answer=faults.one_task),
        {
            "json-empty-ids",
            "message-id-other-content",
            "subscribe-dropped",
            "subscribe-same",
            "subscribe-waiting",
            "turn-answer",
            "turn-context-given",
            "turn-context-inferred",
            "turn-task-ids",
            "turn-waits",
        },
    ),
    "HTTP+JSON is elsewhere": (
        Spoil(answer=faults.elsewhere, bindings=(HTTP_JSON,)),
        {
            "http-cancel",
            "http-queries",
            "http-subscribe-get",
            "http-subscribe-post",
            "http-takes-a2a-json",
            "http-takes-json",
        },
    ),
    "answers are plain text": (
        Spoil(headers={"content-type": "text/plain"}),
        {"card-served", "rpc-content-type"},
    ),
    "calls need params": (Spoil(request=faults.params_needed), {"rpc-no-params"}),
    "0.3 is spoken and not in the card": (Spoil(answer=faults.no_older), {"version-none"}),
    "tokens are asked for in the card only": (
        Spoil(answer=faults.token_in_card),
        {
            "auth-challenge",
            "auth-missing",
            "auth-wrong",
            "callers-cancel",
            "callers-get",
            "callers-list",
            "callers-send",
            "callers-subscribe",
            "extended-strangers",
        },
    ),
    "codes of its own": (
        Spoil(answer=faults.own_codes),
        {"rpc-error-fields", "get-unknown", "cancel-unknown", "send-to-unknown"},
    ),
}
"""The same where one fault shows in many places: what has to be among them."""

NOT_SEEN_TO_FAIL: Final = {"stream-input-closes", "turn-auth-explained", "turn-auth-messages"}
"""What no agent here, good or broken, does wrong."""


def _deletes_another(asked: Asked) -> Any:
    is_deleted = asked.method == DELETE_PUSH and isinstance(asked.params, dict)
    return {**asked.body, "params": {**asked.params, "id": "another"}} if is_deleted else asked.body


@dataclass(frozen=True, slots=True)
class Pushing:
    """An agent with push notifications that is broken, in what it answers or in what it posts."""

    expected: frozenset[str]
    """All checks of push notifications that fail then."""
    posted: SpoilPosted = as_it_came
    spoil: Spoil = field(default_factory=Spoil)
    is_silent: bool = False
    """Whether it posts nothing: then the expected checks alone are tried, as each of them waits for its deadline."""


PUSHING: Final[Mapping[str, Pushing]] = {
    "nothing is posted": Pushing(
        frozenset({"push-body", "push-credentials", "push-deleted", "push-end", "push-later", "push-type"}),
        lambda posted: None,
        is_silent=True,
    ),
    "posted without credentials": Pushing(
        frozenset({"push-credentials"}),
        lambda posted: replace(posted, headers=httpx2.Headers({"content-type": "application/a2a+json"})),
    ),
    "posted as another type": Pushing(
        frozenset({"push-type"}),
        lambda posted: replace(
            posted, headers=httpx2.Headers({**posted.headers, "content-type": "text/json"})
        ),
    ),
    "posted in an envelope": Pushing(
        frozenset({"push-body"}),
        lambda posted: replace(posted, body=b'{"jsonrpc":"2.0",' + posted.body[1:]),
    ),
    "nothing is deleted": Pushing(
        frozenset({"push-deleted", "push-kept"}), spoil=Spoil(request=_deletes_another)
    ),
    "all callers are one": Pushing(frozenset({"callers-push"}), spoil=Spoil(answer=faults.token_in_card)),
}
