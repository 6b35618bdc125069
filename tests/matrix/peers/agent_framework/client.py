"""Microsoft Agent Framework as a client: `A2AAgent`."""

import contract as c
from a2a.client import A2ACardResolver
from a2a.types import AgentCard, TaskState
from agent_framework import AgentResponse, AgentResponseUpdate, AgentSession, Content, Message
from agent_framework_a2a import A2AAgent
from httpx import AsyncClient

NO_DATA = "A2AAgent has no content that becomes a data part"
NO_CANCEL = "A2AAgent has no way to cancel a task"


async def card_at(url: str) -> AgentCard:
    async with AsyncClient() as http:
        return await A2ACardResolver(http, url).get_agent_card()


async def agent(url: str) -> A2AAgent:
    """An agent by its card: with a URL alone it would never stream."""
    return A2AAgent(agent_card=await card_at(url), timeout=c.SECONDS)


async def said(url: str, *contents: Content) -> AgentResponse:
    async with await agent(url) as there:
        return await there.run(Message(role="user", contents=[*contents]))


async def card(url: str) -> None:
    read = await card_at(url)
    c.check({skill.id for skill in read.skills} == c.SKILLS, read)
    c.check((await agent(url)).description == "Tools for every client.", (await agent(url)).description)


async def text(url: str) -> None:
    gave = (await said(url, Content.from_text(c.TEXT))).text
    c.check(gave == c.TEXT_GIVES, gave)


async def file(url: str) -> None:
    sends = Content.from_data(data=c.FILE_BYTES, media_type=c.FILE_TYPE)
    response = await said(url, Content.from_text(f"{c.FILE_SKILL} {{}}"), sends)
    contents = [one for message in response.messages for one in message.contents]
    gave = [one.uri for one in contents if one.type == "data"]
    c.check(gave == [f"data:{c.FILE_TYPE};base64,{c.WORDS['file_base64']}"], (response.text, gave))


async def stream(url: str) -> None:
    updates: list[AgentResponseUpdate] = []
    async with await agent(url) as there:
        async for update in there.run(c.STREAM, stream=True):
            updates.append(update)
    seen = [update.text for update in updates if update.text]
    c.check(seen[:3] == c.STEPS, seen)
    c.check(seen[-1] == c.STREAM_GIVES, seen)


async def ask(url: str) -> None:
    session = AgentSession()
    async with await agent(url) as there:
        asked = (await there.run(c.ASK, session=session)).user_input_requests
        c.check(asked and c.QUESTION in asked[0].text, asked)
        gave = (await there.run(c.ANSWER, session=session)).text
    c.check(gave == c.ASK_GIVES, gave)


async def fail(url: str) -> None:
    session = AgentSession()
    async with await agent(url) as there:
        response = await there.run(c.FAIL, session=session)
    c.check(c.FAIL_GIVES in response.text, response.text)
    c.check(
        session.service_session_id["task_state"] == TaskState.TASK_STATE_FAILED, session.service_session_id
    )


async def turns(url: str) -> None:
    session = AgentSession()
    async with await agent(url) as there:
        gave = tuple([(await there.run(turn, session=session)).text for turn in c.TURNS])
    c.check(gave == c.TURNS_GIVE, gave)


c.play(
    {
        "card": card,
        "text": text,
        "file": file,
        "stream": stream,
        "ask": ask,
        "fail": fail,
        "turns": turns,
    },
    cannot={"data": NO_DATA, "cancel": NO_CANCEL},
)
