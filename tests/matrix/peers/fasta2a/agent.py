"""fasta2a as an agent: one of Pydantic AI, its model that of the test."""

import contract as c
from fasta2a import Skill
from fasta2a.pydantic_ai import agent_to_a2a
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

NO_ASK = "its worker ends each task as completed or failed"
NO_DATA = "the worker of Pydantic AI takes text and files, and fails a task with a data part"

bound = c.listener()
openai = AsyncOpenAI(base_url=c.MODEL, api_key="none", max_retries=0)
agent = Agent(OpenAIChatModel("stub", provider=OpenAIProvider(openai_client=openai)), name="fasta2a")
skill = Skill(
    id="chat",
    name="Chat",
    description="Says it back.",
    tags=["test"],
    input_modes=["text/plain"],
    output_modes=["text/plain"],
)
c.serve(
    agent_to_a2a(agent, url=c.url_of(bound), skills=[skill]), bound, cannot={"ask": NO_ASK, "data": NO_DATA}
)
