"""LiteLLM as a client: its wrapper of a2a-sdk, whose requests are those of 0.3 and which speaks 1.0."""

from typing import Any
from uuid import uuid4

import contract as c
from a2a.compat.v0_3.types import MessageSendParams, SendMessageRequest, SendStreamingMessageRequest
from litellm.a2a_protocol import A2AClient, asend_message_streaming, create_a2a_client

NO_CANCEL = "litellm.a2a_protocol can send and stream messages, but cannot cancel a task"


def text_part(text: str) -> dict[str, Any]:
    return {"kind": "text", "text": text}


def params(parts: list[dict[str, Any]], **fields: Any) -> MessageSendParams:
    return MessageSendParams(message={"role": "user", "parts": parts, "messageId": uuid4().hex, **fields})


async def sent(url: str, *parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The task that a message made, once it has settled."""
    request = SendMessageRequest(id=str(uuid4()), params=params([*parts], **fields))
    answer = await A2AClient(url, timeout=c.SECONDS).send_message(request)
    return answer.model_dump(mode="json", exclude_none=True)["result"]


def given(task: dict[str, Any]) -> list[dict[str, Any]]:
    c.check(task["status"]["state"] == "completed", f"the task is {task['status']}")
    return [part for artifact in task["artifacts"] for part in artifact["parts"]]


def words_in(parts: list[dict[str, Any]]) -> str:
    return "".join(part.get("text", "") for part in parts)


async def card(url: str) -> None:
    read = await A2AClient(url).get_agent_card()
    c.check({skill.id for skill in read.skills} == c.SKILLS, read)


async def text(url: str) -> None:
    gave = words_in(given(await sent(url, text_part(c.TEXT))))
    c.check(gave == c.TEXT_GIVES, gave)


async def data(url: str) -> None:
    parts = given(await sent(url, {"kind": "data", "data": c.DATA}))
    gave = [part["data"] for part in parts if part["kind"] == "data"]
    c.check(gave == [c.DATA_GIVES], gave)


async def file(url: str) -> None:
    content = {"bytes": c.WORDS["file_base64"], "name": c.FILE_NAME, "mimeType": c.FILE_TYPE}
    call = {"kind": "data", "data": {"skill": c.FILE_SKILL, "arguments": {}}}
    parts = given(await sent(url, call, {"kind": "file", "file": content}))
    gave = [part["file"]["bytes"] for part in parts if part["kind"] == "file"]
    c.check(gave == [c.WORDS["file_base64"]], gave)


async def stream(url: str) -> None:
    client = await create_a2a_client(url, timeout=c.SECONDS, streaming=True)
    request = SendStreamingMessageRequest(id=str(uuid4()), params=params([text_part(c.STREAM)]))
    seen, gave = [], []
    async for chunk in asend_message_streaming(client, request):
        event = chunk.model_dump(mode="json", exclude_none=True)["result"]
        if event["kind"] == "status-update" and "message" in event["status"]:
            seen.append(words_in(event["status"]["message"]["parts"]))
        elif event["kind"] == "artifact-update":
            gave.append(words_in(event["artifact"]["parts"]))
    c.check(seen[:3] == c.STEPS, seen)
    c.check(gave == [c.STREAM_GIVES], gave)


async def ask(url: str) -> None:
    task = await sent(url, text_part(c.ASK))
    c.check(task["status"]["state"] == "input-required", task["status"])
    c.check(c.QUESTION in words_in(task["status"]["message"]["parts"]), task["status"])
    ids = {"taskId": task["id"], "contextId": task["contextId"]}
    gave = words_in(given(await sent(url, text_part(c.ANSWER), **ids)))
    c.check(gave == c.ASK_GIVES, gave)


async def fail(url: str) -> None:
    task = await sent(url, text_part(c.FAIL))
    c.check(task["status"]["state"] == "failed", task["status"])
    c.check(c.FAIL_GIVES in words_in(task["status"]["message"]["parts"]), task["status"])


async def turns(url: str) -> None:
    first = await sent(url, text_part(c.TURNS[0]))
    second = await sent(url, text_part(c.TURNS[1]), contextId=first["contextId"])
    c.check((words_in(given(first)), words_in(given(second))) == c.TURNS_GIVE, (first, second))


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
