"""AG2 as a client: an agent whose model is a remote agent."""

import asyncio
from typing import Any

import contract as c
from ag2 import Agent, AgentReply
from ag2.a2a import A2AConfig
from ag2.a2a.errors import A2ATaskFailedError
from ag2.a2a.events import A2ATaskArtifactUpdate, A2ATaskSnapshot, A2ATaskStatusUpdate
from ag2.a2a.tasks import cancel_task, get_task
from ag2.events import BaseEvent, BinaryInput, DataInput, HumanInputRequest
from ag2.stream import MemoryStream
from google.protobuf.json_format import MessageToDict

NO_CARD = "A2AConfig reads the card, but its interface does not return it"


class Talk:
    """A conversation with the remote agent, and what was seen of it."""

    def __init__(self, url: str) -> None:
        self.config = A2AConfig(card_url=url, timeout=c.SECONDS)
        self.asked: list[str] = []
        self.seen: list[BaseEvent] = []
        self.moved = asyncio.Event()
        self._agent = Agent("matrix", config=self.config, hitl_hook=self._answer)
        self._reply: AgentReply | None = None

    async def say(self, *inputs: Any) -> str:
        if self._reply is None:
            stream = MemoryStream()
            stream.subscribe(self._see)
            self._reply = await self._agent.ask(*inputs, stream=stream)
        else:
            self._reply = await self._reply.ask(*inputs)
        return self._reply.body or ""

    def parts(self) -> list[dict[str, Any]]:
        """The parts of all artifacts that came."""
        found = {}
        for event in self.seen:
            if isinstance(event, A2ATaskSnapshot):
                found |= {one.artifact_id: one for one in event.task.artifacts}
            elif isinstance(event, A2ATaskArtifactUpdate):
                found[event.update.artifact.artifact_id] = event.update.artifact
        return [part for one in found.values() for part in MessageToDict(one)["parts"]]

    def said(self) -> list[Any]:
        """The updates that have words."""
        updates = [event.update for event in self.seen if isinstance(event, A2ATaskStatusUpdate)]
        return [update for update in updates if update.status.message.parts]

    async def _see(self, event: BaseEvent) -> None:
        self.seen.append(event)
        self.moved.set()

    def _answer(self, event: HumanInputRequest) -> str:
        self.asked.append(event.content)
        return c.ANSWER


async def text(url: str) -> None:
    gave = await Talk(url).say(c.TEXT)
    c.check(gave == c.TEXT_GIVES, gave)


async def plain(url: str) -> None:
    gave = await Talk(url).say(c.PLAIN)
    c.check(gave == c.PLAIN_GIVES, gave)


async def data(url: str) -> None:
    talk = Talk(url)
    await talk.say(DataInput(c.DATA))
    gave = [part["data"] for part in talk.parts() if "data" in part]
    c.check(gave == [c.DATA_GIVES], (gave, talk.seen))


async def file(url: str) -> None:
    talk = Talk(url)
    await talk.say(f"{c.FILE_SKILL} {{}}", BinaryInput(c.FILE_BYTES, media_type=c.FILE_TYPE))
    gave = [part["raw"] for part in talk.parts() if "raw" in part]
    c.check(gave == [c.WORDS["file_base64"]], (gave, talk.asked))


async def stream(url: str) -> None:
    talk = Talk(url)
    gave = await talk.say(c.STREAM)
    seen = ["".join(part.text for part in update.status.message.parts) for update in talk.said()]
    c.check(seen[:3] == c.STEPS, (seen, talk.seen))
    c.check(gave == c.STREAM_GIVES, gave)


async def ask(url: str) -> None:
    talk = Talk(url)
    gave = await talk.say(c.ASK)
    c.check(talk.asked and c.QUESTION in talk.asked[0], talk.asked)
    c.check(c.ASK_GIVES in gave, gave)


async def fail(url: str) -> None:
    try:
        gave = await Talk(url).say(c.FAIL)
    except A2ATaskFailedError as exc:
        said = str(exc.task.status.message)
        c.check(c.FAIL_GIVES in said, f"{exc}: {said}")
    else:
        c.check(False, f"no error was raised: {gave}")


async def cancel(url: str) -> None:
    talk = Talk(url)

    async def talked() -> None:
        await talk.say(c.CANCEL)

    async with asyncio.TaskGroup() as tasks:
        talking = tasks.create_task(talked())
        while not talk.said():
            await talk.moved.wait()
            talk.moved.clear()
        task = await cancel_task(talk.config, talk.said()[0].task_id)
        talking.cancel()
    state = MessageToDict(await get_task(talk.config, task.id))["status"]["state"]
    c.check(state == "TASK_STATE_CANCELED", state)


async def turns(url: str) -> None:
    talk = Talk(url)
    gave = tuple([await talk.say(turn) for turn in c.TURNS])
    c.check(gave == c.TURNS_GIVE, gave)


c.play(
    {
        "text": text,
        "plain": plain,
        "data": data,
        "file": file,
        "stream": stream,
        "ask": ask,
        "fail": fail,
        "cancel": cancel,
        "turns": turns,
    },
    cannot={"card": NO_CARD},
)
