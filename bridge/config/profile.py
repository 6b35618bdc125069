"""Mapping profiles: TOML files with every choice that the protocols leave open.

The model has no defaults: `mappings/default.toml` is the default, and the only place that says so.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError

from bridge.errors import UsageError

DEFAULT: Final = "default"

NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class CardTable(_Table):
    """`[card]`"""

    max_age_seconds: Count


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
    cancel_grace_seconds: PositiveFloat
    drain_seconds: NotNegative
    concurrency: PositiveInt
    queue: Count
    progress_in_flight: PositiveInt
    progress_per_second: PositiveFloat


class ServerTable(_Table):
    """`[server]`"""

    fail: Literal["open", "closed"]
    connect_seconds: PositiveFloat
    longest_pause_seconds: PositiveFloat
    retire_seconds: NotNegative
    settle_seconds: NotNegative
    session: Literal["shared", "principal", "context"]
    sessions: PositiveInt
    sessions_most: PositiveInt
    session_idle_seconds: PositiveFloat
    result_limit_bytes: PositiveInt


class ContentTable(_Table):
    """`[content]`"""

    inline_limit_bytes: Count
    allow_file_links: bool


class RequestsTable(_Table):
    """`[requests]`"""

    body_limit_bytes: PositiveInt
    json_depth: Annotated[int, Field(ge=8, le=100)]
    parts: PositiveInt
    repeat_seconds: NotNegative


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
    clean_every_seconds: PositiveFloat


class AgentsTable(_Table):
    """`[agents]`"""

    granularity: Literal["skill", "agent", "search"]
    prefix: Literal["collision", "always"]
    follow_up_tools: bool
    answer_within_seconds: PositiveFloat
    task_after_seconds: NotNegative
    task_poll_seconds: PositiveFloat
    task_ttl_seconds: PositiveInt
    outage_seconds: NotNegative
    skill_in_text: bool
    part_inline_limit_bytes: Count
    agent_connect_seconds: PositiveFloat
    answer_seconds: PositiveFloat
    silence_seconds: PositiveFloat
    first_cards_seconds: NotNegative
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
    streams: StreamsTable
    store: StoreTable
    agents: AgentsTable


def load_profile(name: str = DEFAULT) -> Profile:
    """A profile by its name in `mappings/`, or by the path of a file.

    Raises:
        UsageError: there is none, it is no TOML, or keys of it are missing, unknown or wrong: all of them are named.
    """
    path = _find(name)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8"
        raise UsageError(f"cannot read the mapping profile {path}: {reason}") from exc
    try:
        return Profile.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as exc:
        raise UsageError(f"the mapping profile {path} is no TOML: {exc}") from exc
    except ValidationError as exc:
        faults = "".join(f"\n  {fault}" for fault in _faults(exc))
        raise UsageError(f"the mapping profile {path} is not as it should be:{faults}") from exc


def mappings_folder() -> Path:
    """Where the profiles are: inside the package once it is installed, beside it in a checkout."""
    inside = Path(str(files("bridge"))) / "mappings"
    return inside if inside.is_dir() else inside.parent.parent / "mappings"


def _find(name: str) -> Path:
    if "/" in name or "\\" in name or name.endswith(".toml"):
        return Path(name).expanduser()
    path = mappings_folder() / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(sorted(found.stem for found in mappings_folder().glob("*.toml")))
        raise UsageError(
            f"there is no mapping profile {name!r}; there is {known}, or give the path of a .toml file"
        )
    return path


def _faults(error: ValidationError) -> list[str]:
    lines = []
    for found in error.errors(include_url=False):
        where = ".".join(str(step) for step in found["loc"])
        match found["type"]:
            case "missing":
                lines.append(f"{where} is missing; a profile holds every key of mappings/default.toml")
            case "extra_forbidden":
                lines.append(f"{where} is not a key of a profile")
            case _:
                lines.append(f"{where} = {found['input']!r}: {found['msg']}")
    return lines
