"""Mapping profiles: TOML files with every choice that the protocols leave open.

The model has no defaults; all defaults stand in `mappings/default.toml`. A profile holds every key, or extends another
profile and holds only the keys that differ. A value replaces the value below it as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, PositiveFloat, PositiveInt, ValidationError

from bridge.config.check.schema_nodes import SchemaNode, tidied
from bridge.config.check.validation_faults import validation_faults_of, without_guesses
from bridge.config.tables.values import Count, NetworkText, NotNegative
from bridge.config.tables.values import Table as _Table
from bridge.config.text.document import (
    DEFAULT_SOURCE,
    ConfigFault,
    Document,
    ValueSource,
    read_toml,
    source_at,
)
from bridge.config.text.secrets import expanded
from bridge.config.text.wording import listed, meant, spelled
from bridge.errors import ConfigError, UsageError

DEFAULT_PROFILE_NAME: Final = "default"


class NoProfileError(UsageError):
    """There is no profile of this name, or no such file."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message, self.hint = message, hint


def absolute_name(name: str, folder: Path) -> str:
    """The name of a profile that is valid in any folder: its name, or its absolute path."""
    return str(Path.absolute(folder / expanded(name))) if _is_path(name) else name


def profile_place(name: str = DEFAULT_PROFILE_NAME, folder: Path | None = None) -> Path:
    """The file of a profile.

    Raises:
        NoProfileError: there is no such profile.
    """
    if _is_path(name):
        path = (folder or Path()) / expanded(name)
        if not os.path.isfile(path):
            raise NoProfileError(f"cannot read the mapping profile {path}: there is no such file")
        return path
    path = mappings_folder() / f"{name}.toml"
    if not os.path.isfile(path):
        known = sorted(found.stem for found in mappings_folder().glob("*.toml"))
        raise NoProfileError(
            f"there is no mapping profile {name!r}",
            f"{meant(name, known)} (or give the path of a .toml file)",
        )
    return path


def mappings_folder() -> Path:
    """The folder of the profiles: inside the installed package, or beside the package in a checkout."""
    inside = Path(str(files("bridge"))) / "mappings"
    return inside if inside.is_dir() else inside.parent.parent / "mappings"


def _is_path(name: str) -> bool:
    return "/" in name or "\\" in name or name.endswith(".toml")


EXTENDS: Final = "extends"

_MISSING_SHOWN: Final = 3
"""Missing keys that a message names at most."""


class CardTable(_Table):
    """`[card]`"""

    max_age_seconds: Count
    unavailable_after_seconds: NotNegative
    signed_most: PositiveInt
    legacy_card: bool
    hermes: bool


class RouteTable(_Table):
    """`[route]`"""

    metadata_keys: Annotated[list[str], Field(max_length=100)]
    default_skill: str
    text_into: dict[str, str]


class ArgumentsTable(_Table):
    """`[arguments]`"""

    incomplete: Literal["ask", "reject"]


class RunTable(_Table):
    """`[run]`"""

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
    confirm: Literal["never", "destructive", "strict"]


class ServerTable(_Table):
    """`[server]`"""

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


class ContentTable(_Table):
    """`[content]`"""

    inline_limit_bytes: Count
    links_most: Count
    links_limit_bytes: Count
    allow_file_links: bool


class RequestsTable(_Table):
    """`[requests]`"""

    head_limit_bytes: Annotated[int, Field(ge=1024)]
    headers: Annotated[int, Field(ge=16)]
    target_limit_bytes: Annotated[int, Field(ge=256)]
    head_seconds: PositiveFloat
    body_limit_bytes: PositiveInt
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


class ConnectionsTable(_Table):
    """`[connections]`"""

    most: PositiveInt
    new: PositiveInt
    each: PositiveInt
    proxies: Annotated[list[NetworkText], Field(max_length=1000)]
    idle_seconds: PositiveFloat


class StreamsTable(_Table):
    """`[streams]`"""

    heartbeat_seconds: Annotated[float, Field(gt=0, le=3)]
    stall_seconds: PositiveFloat
    queue_events: PositiveInt
    open: PositiveInt


class StoreTable(_Table):
    """`[store]`"""

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


class PushTable(_Table):
    """`[push]`"""

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


class IssuersTable(_Table):
    """`[issuers]`"""

    fetch_seconds: PositiveFloat
    document_limit_bytes: PositiveInt
    keys_most: PositiveInt
    keys_seconds: PositiveFloat
    unknown_key_seconds: PositiveFloat
    retry_seconds: PositiveFloat
    introspection_seconds: Annotated[float, Field(ge=0, le=60)]
    leeway_seconds: Annotated[float, Field(ge=0, le=55)]  # and a heartbeat: a stream ends within 60 s


class AgentsTable(_Table):
    """`[agents]`"""

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
    agent_connect_seconds: PositiveFloat
    caller_tokens: PositiveInt
    answer_seconds: PositiveFloat
    silence_seconds: PositiveFloat
    first_cards_seconds: NotNegative
    first_servers_seconds: NotNegative
    card_min_seconds: PositiveFloat
    card_max_seconds: PositiveFloat
    allow_private: bool


class Profile(_Table):
    """A mapping profile, whole."""

    card: CardTable
    route: RouteTable
    arguments: ArgumentsTable
    run: RunTable
    server: ServerTable
    content: ContentTable
    requests: RequestsTable
    connections: ConnectionsTable
    streams: StreamsTable
    store: StoreTable
    push: PushTable
    issuers: IssuersTable
    agents: AgentsTable


TABLES_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "bridge": ("server", "requests", "connections", "streams", "store", "push", "issuers"),
    "tools_as_agent": ("card", "route", "arguments", "run", "content"),
    "agents_as_tools": ("agents", "run"),
}
"""The tables that are read from the profile of the process, and from the profile of each kind of face."""


@dataclass(frozen=True)
class ResolvedProfile:
    """A profile with the source of each value."""

    profile: Profile
    origins: Mapping[tuple[str, str], ValueSource]
    """The sources, by table and key."""
    files: frozenset[Path]
    """All files that the profile was read from."""


def load_profile(name: str = DEFAULT_PROFILE_NAME, folder: Path | None = None) -> Profile:
    """Read a profile by its name in `mappings/`, or by the path of a file, relative to the folder.

    Raises:
        ConfigError: the file is no TOML, or keys are missing, unknown or wrong. The message names all of them.
        NoProfileError: there is no such profile.
    """
    return resolve_profile(name, folder).profile


def resolve_profile(name: str = DEFAULT_PROFILE_NAME, folder: Path | None = None) -> ResolvedProfile:
    """Read a profile with the profiles that it extends, and the source of each value.

    Raises:
        ConfigError: one of the files has errors.
        NoProfileError: there is no such profile.
    """
    values: dict[str, Any] = {}
    origins: dict[tuple[str, str], ValueSource] = {}
    layers = _layers(profile_place(name, folder))
    profile: Profile | None = None
    for layer in layers:
        own = {table: keys for table, keys in layer.data.items() if table != EXTENDS}
        values = {**values, **{table: _merged(values.get(table), keys) for table, keys in own.items()}}
        profile = _validated(values, layer)
        origins |= {(table, key): _origin(layer, table, key) for table, keys in own.items() for key in keys}
    assert profile is not None, "a profile has its own layer at least"
    return ResolvedProfile(profile, origins, frozenset(layer.path for layer in layers))


def profile_schema() -> SchemaNode:
    """The schema of a profile."""
    schema: SchemaNode = tidied(Profile.model_json_schema())
    return schema


def _layers(path: Path, above: tuple[Path, ...] = ()) -> list[Document]:
    """The files of a profile, beginning with the one that the others extend."""
    document = read_toml(path, "the mapping profile")
    extended = document.data.get(EXTENDS)
    if extended is None:
        return [document]
    if not isinstance(extended, str):
        raise ConfigError(
            [document.diagnostic(ConfigFault((EXTENDS,), f"`{EXTENDS}` takes the name or path of a profile"))]
        )
    try:
        base = profile_place(extended, path.parent)
    except NoProfileError as exc:
        raise ConfigError([document.diagnostic(ConfigFault((EXTENDS,), exc.message, exc.hint))]) from exc
    below = (*above, path.resolve())
    if base.resolve() in below:
        raise ConfigError(
            [document.diagnostic(ConfigFault((EXTENDS,), f"the profile extends itself by way of {base}"))]
        )
    return [*_layers(base, below), document]


def _merged(below: object, keys: object) -> object:
    return {**below, **keys} if isinstance(below, dict) and isinstance(keys, dict) else keys


def _validated(values: dict[str, Any], layer: Document) -> Profile:
    try:
        return Profile.model_validate(values)
    except ValidationError as exc:
        faults = without_guesses(validation_faults_of(exc, profile_schema(), values))
        raise ConfigError(layer.diagnostics(_with_one_for_all_missing(faults))) from exc


def _with_one_for_all_missing(faults: list[ConfigFault]) -> Iterator[ConfigFault]:
    """Join the faults of missing keys. Only a profile that extends none can lack keys, and then it may lack many."""
    missing = [fault for fault in faults if fault.missing]
    yield from (fault for fault in faults if not fault.missing)
    if missing:
        some = [f"`{spelled((*fault.path, fault.missing))}`" for fault in missing[:_MISSING_SHOWN]]
        more = [f"{len(missing) - len(some)} more"] if len(missing) > len(some) else []
        message = (
            f"a profile that extends none holds every key; this one lacks {listed([*some, *more], 'and')}"
        )
        yield ConfigFault(
            (),
            message,
            f'write {EXTENDS} = "{DEFAULT_PROFILE_NAME}" as its first line, and only what differs',
        )


def _origin(layer: Document, table: str, key: str) -> ValueSource:
    if layer.path == mappings_folder() / f"{DEFAULT_PROFILE_NAME}.toml":
        return DEFAULT_SOURCE
    return source_at(layer, (table, key), "profile")
