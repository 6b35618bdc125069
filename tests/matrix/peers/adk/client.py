"""Google ADK as a client: a remote agent of a runner."""

import json
from collections.abc import AsyncGenerator, AsyncIterator

import contract as c
from google.adk.agents import BaseAgent, LlmAgent
from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.events import Event
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types

NO_CANCEL = "RemoteA2aAgent sends no cancellation: no code of google-adk calls tasks/cancel"
DATA = b"<a2a_datapart_json>%b</a2a_datapart_json>"
"""How ADK writes a data part, which its own content has no kind for."""


class Transfers(BaseLlm):
    """A model that hands everything over to the remote agent."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        call = types.Part.from_function_call(name="transfer_to_agent", args={"agent_name": "matrix"})
        yield LlmResponse(content=types.Content(role="model", parts=[call]))


class Conversation:
    """A session with the remote agent."""

    def __init__(self, url: str, agent: BaseAgent | None = None) -> None:
        self.agent = agent or RemoteA2aAgent(
            name="matrix", agent_card=f"{url}/.well-known/agent-card.json", timeout=c.SECONDS
        )
        self._runner = InMemoryRunner(self.agent, app_name="matrix")
        self._session = ""

    async def say(self, *parts: types.Part) -> list[Event]:
        return [event async for event in self.said(*parts)]

    async def said(self, *parts: types.Part) -> AsyncIterator[Event]:
        if not self._session:
            made = await self._runner.session_service.create_session(app_name="matrix", user_id="me")
            self._session = made.id
        message = types.Content(role="user", parts=[*parts])
        async for event in self._runner.run_async(
            user_id="me", session_id=self._session, new_message=message
        ):
            yield event


def text_part(text: str) -> types.Part:
    return types.Part(text=text)


def data_part(value: object) -> types.Part:
    return types.Part.from_bytes(data=DATA % json.dumps(value).encode(), mime_type="text/plain")


def parts_of(events: list[Event]) -> list[types.Part]:
    failed = [event.error_message for event in events if event.error_message]
    c.check(not failed, failed)
    return [part for event in events if event.content for part in event.content.parts or []]


def words(events: list[Event]) -> str:
    return "".join(part.text for part in parts_of(events) if part.text and not part.thought)


async def card(url: str) -> None:
    there = Conversation(url)
    await there.say(text_part(c.TEXT))
    c.check("Tools for every client" in there.agent.description, there.agent.description)


async def text(url: str) -> None:
    gave = words(await Conversation(url).say(text_part(c.TEXT)))
    c.check(gave == c.TEXT_GIVES, gave)


async def plain(url: str) -> None:
    """A model hands the conversation over to the remote agent, which is its sub-agent."""
    remote = RemoteA2aAgent(name="matrix", agent_card=f"{url}/.well-known/agent-card.json", timeout=c.SECONDS)
    root = LlmAgent(name="root", model=Transfers(model="stub"), sub_agents=[remote])
    there = Conversation(url, root)
    gave = words([event for event in await there.say(text_part(c.PLAIN)) if event.author == "matrix"])
    c.check(gave == c.PLAIN_GIVES, gave)


async def data(url: str) -> None:
    parts = parts_of(await Conversation(url).say(data_part(c.DATA)))
    gave = [part.inline_data.data for part in parts if part.inline_data]
    c.check(any(b'"sum":3' in one.replace(b" ", b"").replace(b"3.0", b"3") for one in gave), parts)


async def file(url: str) -> None:
    sends = types.Part(
        inline_data=types.Blob(data=c.FILE_BYTES, mime_type=c.FILE_TYPE, display_name=c.FILE_NAME)
    )
    call = data_part({"skill": c.FILE_SKILL, "arguments": {}})
    parts = parts_of(await Conversation(url).say(call, sends))
    gave = [part.inline_data.data for part in parts if part.inline_data]
    c.check(gave == [c.FILE_BYTES], parts)


async def stream(url: str) -> None:
    events = await Conversation(url).say(text_part(c.STREAM))
    seen = [part.text for part in parts_of(events) if part.thought and part.text]
    c.check([one for one in seen if one in c.STEPS] == c.STEPS, seen)
    c.check(words(events) == c.STREAM_GIVES, words(events))


async def ask(url: str) -> None:
    there = Conversation(url)
    asked = await there.say(text_part(c.ASK))
    said = str([part.model_dump(exclude_none=True) for part in parts_of(asked)])
    c.check(c.QUESTION in said, said)
    calls = [part.function_call for part in parts_of(asked) if part.function_call]
    c.check(calls, f"the question came as no call that waits for an answer: {said}")
    answer = types.FunctionResponse(id=calls[-1].id, name=calls[-1].name, response={"result": c.ANSWER})
    gave = words(await there.say(types.Part(function_response=answer)))
    c.check(gave == c.ASK_GIVES, gave)


async def fail(url: str) -> None:
    events = await Conversation(url).say(text_part(c.FAIL))
    failed = [event.error_message for event in events if event.error_message]
    said = str([event.content for event in events])
    c.check(c.FAIL_GIVES in str(failed), f"no event is an error: {said}" if c.FAIL_GIVES in said else said)


async def turns(url: str) -> None:
    there = Conversation(url)
    gave = tuple([words(await there.say(text_part(turn))) for turn in c.TURNS])
    c.check(gave == c.TURNS_GIVE, gave)


c.play(
    {
        "card": card,
        "text": text,
        "plain": plain,
        "data": data,
        "file": file,
        "stream": stream,
        "ask": ask,
        "fail": fail,
        "turns": turns,
    },
    cannot={"cancel": NO_CANCEL},
)
