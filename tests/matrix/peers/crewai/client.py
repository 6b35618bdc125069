"""CrewAI as a client: the delegation that its agents call a remote agent by."""

from typing import Any

import contract as c
from crewai.a2a.task_helpers import TaskStateResult
from crewai.a2a.updates import StreamingConfig
from crewai.a2a.utils.agent_card import afetch_agent_card
from crewai.a2a.utils.delegation import aexecute_a2a_delegation

NO_DATA = "a delegation is a text, with files if the package crewai-files is installed"
NO_CANCEL = "a delegation has no way to cancel the task"


async def delegated(url: str, words: str, **options: Any) -> TaskStateResult:
    return await aexecute_a2a_delegation(
        endpoint=f"{url}/.well-known/agent-card.json",
        auth=None,
        timeout=c.SECONDS,
        task_description=words,
        updates=StreamingConfig(),
        **options,
    )


def given(result: TaskStateResult) -> str:
    c.check(result["status"] == "completed", result)
    return result["result"]


async def card(url: str) -> None:
    read = await afetch_agent_card(f"{url}/.well-known/agent-card.json")
    c.check({skill.id for skill in read.skills} == c.SKILLS, read)


async def text(url: str) -> None:
    gave = given(await delegated(url, c.TEXT))
    c.check(gave == c.TEXT_GIVES, gave)


async def plain(url: str) -> None:
    gave = given(await delegated(url, c.PLAIN))
    c.check(gave == c.PLAIN_GIVES, gave)


async def stream(url: str) -> None:
    """What a task says on its way is a part of the result: nothing but a stream has told it."""
    gave = given(await delegated(url, c.STREAM))
    c.check(gave == " ".join([*c.STEPS, c.STREAM_GIVES]), gave)


async def ask(url: str) -> None:
    asked = await delegated(url, c.ASK)
    c.check(asked["status"] == "input-required", asked)
    c.check(c.QUESTION in asked.get("error", "") + asked.get("result", ""), asked)
    task = asked["history"][-1]
    again = await delegated(url, c.ANSWER, task_id=task.task_id, context_id=task.context_id)
    c.check(given(again) == c.ASK_GIVES, again)


async def fail(url: str) -> None:
    result = await delegated(url, c.FAIL)
    c.check(result["status"] == "failed" and c.FAIL_GIVES in result["error"], result)


async def turns(url: str) -> None:
    first = await delegated(url, c.TURNS[0])
    second = await delegated(url, c.TURNS[1], context_id=first["history"][-1].context_id)
    c.check((given(first), given(second)) == c.TURNS_GIVE, (first, second))


c.play(
    {"card": card, "text": text, "plain": plain, "stream": stream, "ask": ask, "fail": fail, "turns": turns},
    cannot={"data": NO_DATA, "file": NO_DATA, "cancel": NO_CANCEL},
)
