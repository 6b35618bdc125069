"""Agno as an agent: an AgentOS with its A2A interface, the model that of the test."""

import contract as c
from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.models.openai.like import OpenAILike
from agno.os import AgentOS

NO_ASK = "its interface ends each task as completed, failed or canceled"
NO_CANCEL = (
    "its card has the URL `.../v1/message:stream`, which accepts only messages; cancel has another URL"
)

bound = c.listener()
model = OpenAILike(id="stub", api_key="none", base_url=c.MODEL, max_retries=0)
agent = Agent(
    id="agno", name="agno", model=model, db=InMemoryDb(), add_history_to_context=True, telemetry=False
)
app = AgentOS(agents=[agent], a2a_interface=True, telemetry=False).get_app()
c.serve(app, bound, path="/a2a/agents/agno", cannot={"ask": NO_ASK, "cancel": NO_CANCEL})
