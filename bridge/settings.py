"""The settings: one frozen value for each table of a mapping profile, with the type and the bound of each key.

The parts of the bridge use these values directly. Only `mappings/default.toml` has the value of each key, its meaning
and its unit: no key has a default here. The profile, the JSON Schema, the page about mappings and the commands `check`
and `show` come from these two files. A new key needs a line in each.
"""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt
from pydantic_core import PydanticCustomError

NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]


def _network(text: str) -> str:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError as exc:
        raise PydanticCustomError(
            "refused",
            "{message}",
            {"message": '`{key}` takes IP addresses, and networks like "10.0.0.0/8"', "hint": ""},
        ) from exc
    return text


Network = Annotated[str, AfterValidator(_network)]


class Settings(BaseModel):
    """The settings of a table."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
        defer_build=True,
    )

    def having(self, **values: Any) -> Self:
        """A copy with other values. Only the names of the values are checked."""
        if unknown := values.keys() - type(self).model_fields:
            raise TypeError(f"{type(self).__name__} has no {sorted(unknown)}")
        return self.model_copy(update=values)


class CardSettings(Settings):
    """`[card]`: the content of an agent's card, and the clients that can read it."""

    max_age_seconds: Count
    unavailable_after_seconds: NotNegative
    signed_most: PositiveInt
    legacy_card: bool
    hermes: bool


class RouteSettings(Settings):
    """`[route]`: how a message selects a tool."""

    metadata_keys: Annotated[list[str], Field(max_length=100)]
    default_skill: str
    language: Literal["phrases", "strict"]
    read_only: Annotated[list[str], Field(max_length=1000)]
    text_into: dict[str, str]
    phrases: dict[str, Annotated[list[str], Field(max_length=100)]]


class ArgumentSettings(Settings):
    """`[arguments]`: what happens if arguments are missing or wrong."""

    incomplete: Literal["ask", "reject"]


class RunSettings(Settings):
    """`[run]`: deadlines and numbers of calls."""

    call_timeout_seconds: PositiveFloat
    task_timeout_seconds: PositiveFloat
    queue_timeout_seconds: PositiveFloat
    input_timeout_seconds: PositiveFloat
    held_answer_seconds: NotNegative
    answer_tries: PositiveInt
    cancel_grace_seconds: PositiveFloat
    drain_seconds: NotNegative
    concurrency: PositiveInt
    queue: Count
    progress_in_flight: PositiveInt
    progress_per_second: PositiveFloat
    progress_limit_bytes: PositiveInt
    log_updates_per_second: PositiveFloat
    log_limit_bytes: Annotated[int, Field(ge=1024)]
    subscriptions: PositiveInt
    subscription_resources: PositiveInt
    subscription_update_seconds: NotNegative
    subscription_life_seconds: PositiveFloat
    confirm: Literal["never", "destructive", "strict"]


class ServerSettings(Settings):
    """`[server]`: the sessions with tool servers, and what a server may send."""

    fail: Literal["open", "closed"]
    connect_seconds: PositiveFloat
    start_seconds: PositiveFloat
    longest_pause_seconds: PositiveFloat
    retire_seconds: NotNegative
    settle_seconds: NotNegative
    relist_seconds: PositiveFloat
    session: Literal["shared", "principal", "context"]
    sessions: PositiveInt
    sessions_most: PositiveInt
    session_idle_seconds: PositiveFloat
    login_seconds: PositiveFloat
    login_keep_days: PositiveInt
    contended_question_seconds: PositiveFloat
    attribution_seconds: NotNegative
    child_flush_seconds: NotNegative
    child_exit_seconds: PositiveFloat
    child_quiet_seconds: PositiveFloat
    child_output_seconds: NotNegative
    result_limit_bytes: PositiveInt
    result_json_values: PositiveInt
    tools_most: PositiveInt
    tools_limit_bytes: PositiveInt
    schema_values: PositiveInt
    unanswered_most: PositiveInt


class ContentSettings(Settings):
    """`[content]`: which parts of a result are read and passed on."""

    inline_limit_bytes: Count
    links_most: Count
    links_limit_bytes: Count
    allow_file_links: bool


class RequestSettings(Settings):
    """`[requests]`: the bounds of requests, and of the tasks that they create."""

    head_limit_bytes: Annotated[int, Field(ge=1024)]
    headers: Annotated[int, Field(ge=16)]
    target_limit_bytes: Annotated[int, Field(ge=256)]
    head_seconds: PositiveFloat
    body_limit_bytes: PositiveInt
    grpc_answer_bytes: Annotated[int, Field(ge=65536)]
    bodies_limit_bytes: PositiveInt
    body_seconds: PositiveFloat
    bytes_per_second: NotNegative
    pipelined: PositiveInt
    json_depth: Annotated[int, Field(ge=8, le=100)]
    json_values: PositiveInt
    parts: PositiveInt
    repeat_seconds: NotNegative
    repeat_answered_seconds: NotNegative
    held_messages: Count
    held_bytes: Count
    open_tasks: PositiveInt
    history_messages: PositiveInt
    history_bytes: PositiveInt
    timeline_moments: PositiveInt


class ConnectionSettings(Settings):
    """`[connections]`: the connections of clients."""

    most: PositiveInt
    new: PositiveInt
    each: PositiveInt
    proxies: Annotated[list[Network], Field(max_length=1000)]
    idle_seconds: PositiveFloat


class StreamSettings(Settings):
    """`[streams]`: the streams of tasks, and of MCP sessions."""

    heartbeat_seconds: Annotated[float, Field(gt=0, le=3)]
    stall_seconds: PositiveFloat
    queue_events: PositiveInt
    open: PositiveInt
    resume_messages: Count
    resume_limit_bytes: PositiveInt
    resume_pause_seconds: NotNegative


class StoreSettings(Settings):
    """`[store]`: how long ended tasks are kept, and the use of a shared PostgreSQL."""

    synchronous: Literal["full", "normal"]
    keep_ended_seconds: PositiveFloat
    keep_ended_tasks: Count
    keep_ended_tasks_each: Count
    keep_ended_bytes: Count
    keep_ended_bytes_each: Count
    clean_every_seconds: PositiveFloat
    connections: PositiveInt
    statement_seconds: PositiveFloat
    patience_seconds: NotNegative
    waiting_limit_bytes: PositiveInt
    poll_seconds: PositiveFloat
    lease_seconds: PositiveFloat
    keep_events_seconds: NotNegative
    close_seconds: PositiveFloat


class PushSettings(Settings):
    """`[push]`: the push notifications that are sent and received."""

    each_task: PositiveInt
    ended_bytes: PositiveInt
    each_principal: PositiveInt
    pauses_seconds: Annotated[list[PositiveFloat], Field(min_length=1, max_length=64)]
    jitter_percent: Annotated[int, Field(ge=0, le=100)]
    attempt_seconds: PositiveFloat
    answer_limit_bytes: Count
    each_host: PositiveInt
    at_once: PositiveInt
    folded_events: Annotated[int, Field(ge=2)]
    received_each_second: PositiveInt
    received_limit_bytes: PositiveInt


class IssuerSettings(Settings):
    """`[issuers]`: fetching documents from the issuers of callers' tokens."""

    fetch_seconds: PositiveFloat
    document_limit_bytes: PositiveInt
    keys_most: PositiveInt
    keys_seconds: PositiveFloat
    unknown_key_seconds: PositiveFloat
    retry_seconds: PositiveFloat
    introspection_seconds: Annotated[float, Field(ge=0, le=60)]
    leeway_seconds: Annotated[float, Field(ge=0, le=55)]  # and a heartbeat: a stream ends within 60 s


class AgentSettings(Settings):
    """`[agents]`: remote agents as the tools of an MCP server."""

    granularity: Literal["skill", "agent", "search"]
    prefix: Literal["collision", "always"]
    follow_up_tools: bool
    answer_within_seconds: PositiveFloat
    task_after_seconds: NotNegative
    task_poll_seconds: PositiveFloat
    task_ttl_seconds: PositiveInt
    push_poll_seconds: PositiveFloat
    push_look_seconds: NotNegative
    push_tasks: PositiveInt
    outage_seconds: NotNegative
    follow_up_seconds: PositiveInt
    answer_json_values: PositiveInt
    task_limit_bytes: PositiveInt
    unnamed_most: PositiveInt
    found_most: PositiveInt
    skills_most: PositiveInt
    skill_in_text: bool
    context_hint: bool
    part_inline_limit_bytes: Count
    preview_bytes: Count
    subscribed_resources: PositiveInt
    agent_connect_seconds: PositiveFloat
    caller_tokens: PositiveInt
    answer_seconds: PositiveFloat
    silence_seconds: PositiveFloat
    first_cards_seconds: NotNegative
    first_servers_seconds: NotNegative
    card_min_seconds: PositiveFloat
    card_max_seconds: PositiveFloat
    allow_private: bool
