"""BeeAI Framework as a client: `A2AAgent`."""

from typing import Any
from uuid import uuid4

import contract as c
from a2a.types import DataPart, FilePart, FileWithBytes, Message, Part, Role, Task
from beeai_framework.adapters.a2a.agents import A2AAgent, A2AAgentOutput
from beeai_framework.memory import UnconstrainedMemory

NO_CANCEL = "A2AAgent has no way to cancel a task"


def agent(url: str) -> A2AAgent:
    return A2AAgent(url=url, memory=UnconstrainedMemory())


def message(*parts: DataPart | FilePart) -> Message:
    return Message(message_id=uuid4().hex, role=Role.user, parts=[Part(root=part) for part in parts])


def task_of(output: A2AAgentOutput) -> Task:
    return output.event[0]


def parts_of(output: A2AAgentOutput) -> list[Any]:
    task = task_of(output)
    c.check(task.status.state == "completed", f"the task is {task.status}")
    return [part.root for artifact in task.artifacts or [] for part in artifact.parts]


async def card(url: str) -> None:
    there = agent(url)
    await there.check_agent_exists()
    c.check(there.name == "matrix", there.name)


async def text(url: str) -> None:
    gave = (await agent(url).run(c.TEXT)).last_message.text
    c.check(gave == c.TEXT_GIVES, gave)


async def data(url: str) -> None:
    parts = parts_of(await agent(url).run(message(DataPart(data=c.DATA))))
    gave = [part.data for part in parts if part.kind == "data"]
    c.check(gave == [c.DATA_GIVES], gave)


async def file(url: str) -> None:
    content = FileWithBytes(bytes=c.WORDS["file_base64"], name=c.FILE_NAME, mime_type=c.FILE_TYPE)
    call = DataPart(data={"skill": c.FILE_SKILL, "arguments": {}})
    parts = parts_of(await agent(url).run(message(call, FilePart(file=content))))
    gave = [part.file.bytes for part in parts if part.kind == "file"]
    c.check(gave == [c.WORDS["file_base64"]], gave)


async def stream(url: str) -> None:
    seen = []

    def see(event: Any, _: Any) -> None:
        update = event.value[1]
        status = getattr(update, "status", None)
        if status and status.message:
            seen.append("".join(part.root.text for part in status.message.parts))

    output = await agent(url).run(c.STREAM).on("update", see)
    c.check(seen[:3] == c.STEPS, seen)
    c.check(output.last_message.text == c.STREAM_GIVES, output.last_message.text)


async def ask(url: str) -> None:
    there = agent(url)
    asked = (await there.run(c.ASK)).last_message.text
    c.check(c.QUESTION in asked, asked)
    gave = (await there.run(c.ANSWER)).last_message.text
    c.check(gave == c.ASK_GIVES, gave)


async def fail(url: str) -> None:
    output = await agent(url).run(c.FAIL)
    c.check(task_of(output).status.state == "failed", task_of(output).status)
    c.check(c.FAIL_GIVES in output.last_message.text, output.last_message.text)


async def turns(url: str) -> None:
    there = agent(url)
    gave = tuple([(await there.run(turn)).last_message.text for turn in c.TURNS])
    c.check(gave == c.TURNS_GIVE, gave)


c.play(
    {
        "card": card,
        "text": text,
        "data": data,
        "file": file,
        "stream": stream,
        "ask": ask,
        "fail": fail,
        "turns": turns,
    },
    cannot={"cancel": NO_CANCEL},
)
