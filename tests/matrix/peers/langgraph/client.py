"""LangGraph as a client: a graph whose node posts `message/send`, as its documentation does."""

from typing import Any, NotRequired
from uuid import uuid4

import contract as c
import httpx
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, interrupt

NO_CLIENT = "LangGraph has no client of A2A: its documentation posts `message/send` with a text from a node"


class State(MessagesState):
    """The conversation, and the task of the last answer."""

    url: str
    task: NotRequired[dict[str, Any]]


async def remote(state: State) -> dict[str, Any]:
    """Send the last message to the remote agent."""
    before = state.get("task")
    text = state["messages"][-1].content
    message = {"kind": "message", "role": "user", "parts": [{"kind": "text", "text": text}]}
    message["messageId"] = str(uuid4())
    if before:
        message["contextId"] = before["contextId"]
    if before and is_question(before):
        message["taskId"] = before["id"]
    request = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}}
    async with httpx.AsyncClient(timeout=c.SECONDS) as http:
        answer = (await http.post(state["url"], json=request)).raise_for_status().json()
    if "error" in answer:
        raise RuntimeError(answer["error"]["message"])
    task = answer["result"]
    if task["status"]["state"] == "failed":
        raise RuntimeError(text_of(task["status"]["message"]))
    said = task["status"]["message"] if is_question(task) else task["artifacts"][-1]
    return {"task": task, "messages": [{"role": "assistant", "content": text_of(said)}]}


def person(state: State) -> dict[str, Any]:
    """Let the person who uses the graph answer a question."""
    return {"messages": [{"role": "user", "content": interrupt(state["messages"][-1].content)}]}


def is_question(task: dict[str, Any]) -> bool:
    return task["status"]["state"] == "input-required"


def text_of(holder: dict[str, Any]) -> str:
    return "".join(part["text"] for part in holder["parts"] if part["kind"] == "text")


def made() -> CompiledStateGraph:
    graph = StateGraph(State).add_node("remote", remote).add_node("person", person)
    graph = graph.add_edge(START, "remote").add_edge("person", "remote")
    graph.add_conditional_edges("remote", lambda state: "person" if is_question(state["task"]) else END)
    return graph.compile(checkpointer=InMemorySaver())


THREAD = {"configurable": {"thread_id": "matrix"}}


async def said(graph: CompiledStateGraph, url: str, text: str) -> dict[str, Any]:
    return await graph.ainvoke({"url": url, "messages": [{"role": "user", "content": text}]}, THREAD)


def last(state: dict[str, Any]) -> str:
    return state["messages"][-1].content


async def text(url: str) -> None:
    gave = last(await said(made(), url, c.TEXT))
    c.check(gave == c.TEXT_GIVES, gave)


async def plain(url: str) -> None:
    gave = last(await said(made(), url, c.PLAIN))
    c.check(gave == c.PLAIN_GIVES, gave)


async def ask(url: str) -> None:
    graph = made()
    (asked,) = (await said(graph, url, c.ASK))["__interrupt__"]
    c.check(c.QUESTION in asked.value, asked)
    gave = last(await graph.ainvoke(Command(resume=c.ANSWER), THREAD))
    c.check(gave == c.ASK_GIVES, gave)


async def fail(url: str) -> None:
    try:
        gave = await said(made(), url, c.FAIL)
    except RuntimeError as exc:
        c.check(c.FAIL_GIVES in str(exc), exc)
    else:
        c.check(False, f"no error was raised: {gave}")


async def turns(url: str) -> None:
    graph = made()
    gave = tuple([last(await said(graph, url, turn)) for turn in c.TURNS])
    c.check(gave == c.TURNS_GIVE, gave)


c.play(
    {"text": text, "plain": plain, "ask": ask, "fail": fail, "turns": turns},
    cannot=dict.fromkeys(("card", "data", "file", "stream", "cancel"), NO_CLIENT),
)
