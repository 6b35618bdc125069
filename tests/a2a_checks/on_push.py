"""Checks of push notifications that an agent declares: its configurations, and what it posts.

Spec: A2A 1.0 sections 3.1.7 to 3.1.10, 4.3 and 13.2.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import anyio

from tests.a2a_checks.bindings import CREATE_PUSH, DELETE_PUSH, GET_PUSH, LIST_PUSH, SEND, Reply
from tests.a2a_checks.errors import Kind
from tests.a2a_checks.hooks import Hooks, Posted
from tests.a2a_checks.occasions import Occasions
from tests.a2a_checks.on_optional import HOOK, PUSH
from tests.a2a_checks.shapes import STREAM_RESPONSE, TERMINAL, flaws_in
from tests.a2a_checks.table import Check, Failed, Level, Need, NotTried, Section, need, require, shown
from tests.a2a_checks.talk import Talk, new_id, state_in

_CREDENTIALS: Final = {"scheme": "Bearer", "credentials": "a2a-checks-hook"}


def _need_push(talk: Talk) -> None:
    need(talk.card.capabilities.get("pushNotifications") is True, "the agent declares no pushNotifications")


async def finds_no_task_for_push(talk: Talk, agent: Occasions) -> None:
    _need_push(talk)
    for operation, params in PUSH[:3]:
        await talk.refused(Kind.TASK_NOT_FOUND, operation, params)


async def finds_no_unknown_config(talk: Talk, agent: Occasions) -> None:
    _need_push(talk)
    task = await agent.open()
    await talk.refused(Kind.TASK_NOT_FOUND, GET_PUSH, {"taskId": task["id"], "id": new_id()})


async def keeps_configs(talk: Talk, agent: Occasions) -> None:
    _need_push(talk)
    task = await agent.open()
    made = await talk.result(CREATE_PUSH, {"taskId": task["id"], "id": new_id(), "url": HOOK})
    require(bool(made.get("id")) and made.get("url") == HOOK, "the config with an id", made)
    of_config = {"taskId": task["id"], "id": made["id"]}
    found = await talk.result(GET_PUSH, of_config)
    require(found.get("url") == HOOK, "the config", found)
    listed = (await talk.result(LIST_PUSH, {"taskId": task["id"]})).get("configs") or []
    require(made["id"] in [one.get("id") for one in listed], "the config in the list", listed)
    for _ in range(2):
        await talk.result(DELETE_PUSH, of_config)
    await talk.refused(Kind.TASK_NOT_FOUND, GET_PUSH, of_config)


def _hooks_of(talk: Talk) -> Hooks:
    _need_push(talk)
    if talk.hooks is None:
        raise NotTried("no webhook was given")
    return talk.hooks


def _taken(talk: Talk, reply: Reply, url: str) -> Any:
    """The result, unless the agent refuses this address: it may be one that it guards itself against."""
    refusal = reply.refusal
    if refusal is not None and not talk.binding.says(refusal, Kind.PUSH_NOTIFICATION_NOT_SUPPORTED):
        raise NotTried(f"the agent takes no webhook at {url}: {refusal.shown()}")
    return reply.value()


async def _told_of_end(talk: Talk, agent: Occasions, **config: Any) -> tuple[str, list[Posted]]:
    """The id of a task that has ended, and what came to its webhook until that was told."""
    hooks = _hooks_of(talk)
    path = hooks.new_path()
    url = hooks.root_url + path
    params = agent.send(configuration={"taskPushNotificationConfig": {"url": url, **config}})
    result = _taken(talk, await talk.ask(SEND, params), url)
    task = result.get("task") if isinstance(result, dict) else None
    need(isinstance(task, dict), "the message is answered without a task")
    return task["id"], await hooks.once(path, _tells_an_end)


def _events(posted: Sequence[Posted]) -> list[Any]:
    try:
        return [json.loads(one.body) for one in posted]
    except ValueError:
        raise Failed("notifications in JSON", shown(posted[-1].body)) from None


def _tells_an_end(posted: Sequence[Posted]) -> bool:
    return any(isinstance(event, dict) and state_in(event) in TERMINAL for event in _events(posted))


async def tells_the_end(talk: Talk, agent: Occasions) -> None:
    await _told_of_end(talk, agent)


async def tells_of_a_task_at_work(talk: Talk, agent: Occasions) -> None:
    hooks = _hooks_of(talk)
    task, path = await agent.open(), hooks.new_path()
    url = hooks.root_url + path
    _taken(talk, await talk.ask(CREATE_PUSH, {"taskId": task["id"], "url": url}), url)
    await agent.canceled(task)
    await hooks.once(path, _tells_an_end)


async def posts_stream_responses(talk: Talk, agent: Occasions) -> None:
    task_id, posted = await _told_of_end(talk, agent)
    for event in _events(posted):
        flaws = [str(flaw) for flaw in flaws_in(event, STREAM_RESPONSE)]
        require(not flaws, "a StreamResponse", flaws)
        (held,) = event.values()
        named = held.get("taskId") or held.get("id")
        require(named == task_id, f"the task {task_id}", event)


async def names_the_media_type(talk: Talk, agent: Occasions) -> None:
    _, posted = await _told_of_end(talk, agent)
    for one in posted:
        said = one.headers.get("content-type", "none").partition(";")[0]
        require(said == "application/a2a+json", "application/a2a+json", said)


async def shows_its_credentials(talk: Talk, agent: Occasions) -> None:
    _, posted = await _told_of_end(talk, agent, authentication=_CREDENTIALS)
    for one in posted:
        said = one.headers.get("authorization", "none")
        require(said == "Bearer a2a-checks-hook", "Authorization: Bearer with the credentials", said)


async def is_quiet_once_deleted(talk: Talk, agent: Occasions) -> None:
    hooks = _hooks_of(talk)
    task, kept, dropped = await agent.open(), hooks.new_path(), hooks.new_path()
    made = {}
    for path in (dropped, kept):
        url = hooks.root_url + path
        made[path] = _taken(
            talk, await talk.ask(CREATE_PUSH, {"taskId": task["id"], "id": new_id(), "url": url}), url
        )
    await talk.result(DELETE_PUSH, {"taskId": task["id"], "id": made[dropped]["id"]})
    before = len(hooks.at(dropped))
    await agent.canceled(task)
    await hooks.once(kept, _tells_an_end)
    await anyio.sleep(talk.silence_seconds)
    later = hooks.at(dropped)[before:]
    require(not later, "nothing more at a webhook that was deleted", later)


def _check(check_id: str, spec: str, level: Level, sentence: str, run: Any, *needs: Need) -> Check:
    return Check(check_id, Section.OPTIONAL, spec, level, sentence, run, (Need.PUSH, *needs))


CHECKS: Final = (
    _check(
        "push-unknown-task",
        "3.1.7",
        Level.MUST,
        "A push configuration of a task that does not exist is TaskNotFound",
        finds_no_task_for_push,
    ),
    _check(
        "push-unknown-config",
        "3.1.8",
        Level.MUST,
        "A push configuration that does not exist is TaskNotFound",
        finds_no_unknown_config,
        Need.OPEN,
    ),
    _check(
        "push-kept",
        "3.1.10",
        Level.MUST,
        "A push configuration is kept until it is deleted, and can be deleted twice",
        keeps_configs,
        Need.OPEN,
    ),
    _check(
        "push-end",
        "4.3.3",
        Level.MUST,
        "The webhook of a message is told that its task has ended",
        tells_the_end,
        Need.HOOK,
        Need.TASK,
    ),
    _check(
        "push-later",
        "3.1.7",
        Level.MUST,
        "A webhook that is added to a task is told of what comes later",
        tells_of_a_task_at_work,
        Need.HOOK,
        Need.OPEN,
    ),
    _check(
        "push-body",
        "4.3.3",
        Level.MUST,
        "Each notification is a StreamResponse of its task",
        posts_stream_responses,
        Need.HOOK,
        Need.TASK,
    ),
    _check(
        "push-type",
        "4.3.3",
        Level.SHOULD,
        "Each notification is application/a2a+json",
        names_the_media_type,
        Need.HOOK,
        Need.TASK,
    ),
    _check(
        "push-credentials",
        "13.2",
        Level.MUST,
        "Each notification has the credentials of its configuration",
        shows_its_credentials,
        Need.HOOK,
        Need.TASK,
    ),
    _check(
        "push-deleted",
        "3.1.10",
        Level.MUST,
        "A webhook that was deleted is told nothing more",
        is_quiet_once_deleted,
        Need.HOOK,
        Need.OPEN,
    ),
)
