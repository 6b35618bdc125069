"""Google ADK as an agent: an LLM agent served by `to_a2a`, its model that of the test."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import contract as c
import httpx
from google.adk.a2a.utils.agent_to_a2a import to_a2a
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.tools import LongRunningFunctionTool
from google.genai import types

ROLES = {"user": "user", "model": "assistant"}


class Model(BaseLlm):
    """The model of the test as ADK's own interface wants it: LiteLLM would be a second framework in this one."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        declared = [tool for given in llm_request.config.tools or [] for tool in given.function_declarations]
        asked = {
            "model": self.model,
            "messages": [message for content in llm_request.contents for message in messages_of(content)],
            "tools": [{"type": "function", "function": {"name": tool.name}} for tool in declared],
        }
        async with httpx.AsyncClient(timeout=None) as http:
            answer = (await http.post(f"{c.MODEL}/chat/completions", json=asked)).json()
        if "error" in answer:
            raise RuntimeError(answer["error"]["message"])
        said = answer["choices"][0]["message"]
        calls = [
            types.Part.from_function_call(
                name=call["function"]["name"], args=json.loads(call["function"]["arguments"])
            )
            for call in said.get("tool_calls", ())
        ]
        parts = [types.Part(text=said["content"])] if said["content"] else []
        yield LlmResponse(content=types.Content(role="model", parts=[*parts, *calls]))


def messages_of(content: types.Content) -> list[dict[str, Any]]:
    """A content as messages of chat completions."""
    answers = [part.function_response for part in content.parts if part.function_response]
    if answers:
        return [{"role": "tool", "content": json.dumps(one.response)} for one in answers]
    words = [part.text or blob_text(part) for part in content.parts]
    return [{"role": ROLES[content.role], "content": "\n".join(words)}]


def blob_text(part: types.Part) -> str:
    return part.inline_data.data.decode() if part.inline_data else ""


def ask_person(question: str) -> None:
    """Ask the person something."""


bound = c.listener()
agent = LlmAgent(
    name="adk",
    description="Says back what it is told.",
    model=Model(model="stub"),
    tools=[LongRunningFunctionTool(ask_person)],
)
port = bound.getsockname()[1]
c.serve(to_a2a(agent, host="127.0.0.1", port=port), bound)
