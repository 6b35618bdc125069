"""A graph of LangGraph whose one node asks the model of the test; `agent.py` serves it."""

from typing import Any

import contract as c
import httpx
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

ROLES = {"human": "user", "ai": "assistant"}


class State(MessagesState):
    """What is said, and the one field that a data part of the test has: data parts are fields of the state."""

    city: str


async def answer(state: State) -> dict[str, Any]:
    """Answer the last message, or ask first."""
    said = state["messages"]
    if str(said[-1].content).startswith("ask"):
        return {"messages": [{"role": "assistant", "content": f"You said: {interrupt(c.QUESTION)}"}]}
    asked = [{"role": ROLES[one.type], "content": one.content} for one in said]
    asked[-1]["content"] += f" {state['city']}" if "city" in state else ""
    async with httpx.AsyncClient(timeout=None) as http:
        came = (await http.post(f"{c.MODEL}/chat/completions", json={"messages": asked})).json()
    if "error" in came:
        raise RuntimeError(came["error"]["message"])
    return {"messages": [{"role": "assistant", "content": came["choices"][0]["message"]["content"]}]}


graph = StateGraph(State).add_node("answer", answer)
graph = graph.add_edge(START, "answer").add_edge("answer", END).compile()
