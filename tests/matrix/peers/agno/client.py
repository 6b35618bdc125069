"""Agno as a client: `A2AClient`, over JSON-RPC."""

import contract as c
from agno.client.a2a import A2AClient
from agno.client.a2a.schemas import TaskResult

TEXT_ALONE = "A2AClient sends only text and the URLs of files"
NO_ANSWER = "A2AClient sends no taskId, so it cannot answer a question"
NO_CANCEL = "A2AClient has no way to cancel a task"


async def sent(url: str, words: str, context_id: str | None = None) -> TaskResult:
    return await A2AClient(url, timeout=c.SECONDS, protocol="json-rpc").send_message(
        words, context_id=context_id
    )


async def card(url: str) -> None:
    read = await A2AClient(url).aget_agent_card()  # over JSON-RPC it looks for the card at the agent itself
    c.check(read is not None and read.name == "matrix", read)


async def text(url: str) -> None:
    result = await sent(url, c.TEXT)
    c.check(result.is_completed and result.content == c.TEXT_GIVES, result)


async def stream(url: str) -> None:
    client = A2AClient(url, timeout=c.SECONDS, protocol="json-rpc")
    events = [event async for event in client.stream_message(c.STREAM)]
    seen = [event.content for event in events if event.content]
    c.check(seen == [*c.STEPS, c.STREAM_GIVES], events)


async def fail(url: str) -> None:
    result = await sent(url, c.FAIL)
    c.check(result.is_failed and c.FAIL_GIVES in result.content, result)


async def turns(url: str) -> None:
    first = await sent(url, c.TURNS[0])
    second = await sent(url, c.TURNS[1], first.context_id)
    c.check((first.content, second.content) == c.TURNS_GIVE, (first, second))


c.play(
    {"card": card, "text": text, "stream": stream, "fail": fail, "turns": turns},
    cannot={"data": TEXT_ALONE, "file": TEXT_ALONE, "ask": NO_ANSWER, "cancel": NO_CANCEL},
)
