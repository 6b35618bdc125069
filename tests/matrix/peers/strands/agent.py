"""Strands Agents as an agent: `A2AServer`, its model that of the test."""

import contract as c
from strands import Agent, ToolContext, tool
from strands.models.openai import OpenAIModel
from strands.multiagent.a2a import A2AServer


@tool(context=True)
def ask_person(question: str, tool_context: ToolContext) -> str:
    """Ask the person something."""
    return str(tool_context.interrupt("colour", reason=question))


def agent_of(context_id: str) -> Agent:
    """An agent for one context."""
    model = OpenAIModel(
        client_args={"base_url": c.MODEL, "api_key": "none", "max_retries": 0}, model_id="stub"
    )
    return Agent(
        name="strands",
        description="Says back what it is told.",
        model=model,
        tools=[ask_person],
        callback_handler=None,
    )


bound = c.listener()
port = bound.getsockname()[1]
server = A2AServer(
    agent_factory=agent_of,
    host="127.0.0.1",
    port=port,
    enable_a2a_compliant_streaming=True,
)
c.serve(server.to_starlette_app(), bound)
