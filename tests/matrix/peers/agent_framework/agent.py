"""Microsoft Agent Framework as an agent: `A2AExecutor`, its model that of the test."""

import contract as c
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from agent_framework import Agent, FileHistoryProvider
from agent_framework.openai import OpenAIChatCompletionClient
from agent_framework_a2a import A2AExecutor
from starlette.applications import Starlette

TEXT_ALONE = "A2AExecutor passes on only the text of a message"
NO_ASK = "A2AExecutor has no way to ask: it ends each task as completed, canceled or failed"

bound = c.listener()
url = c.url_of(bound)
model = OpenAIChatCompletionClient(model="stub", api_key="none", base_url=c.MODEL)
# The executor makes a session for each message: what is said before has to be kept by somebody else.
history = FileHistoryProvider("history")
agent = Agent(model, name="agent-framework", instructions="Say it back.", context_providers=[history])
card = AgentCard(
    name="agent-framework",
    description="Says back what it is told.",
    version="1.0.0",
    default_input_modes=["text"],
    default_output_modes=["text"],
    capabilities=AgentCapabilities(streaming=True),
    supported_interfaces=[AgentInterface(url=f"{url}/", protocol_binding="JSONRPC", protocol_version="1.0")],
    skills=[AgentSkill(id="chat", name="Chat", description="Says it back.", tags=["test"])],
)
handler = DefaultRequestHandler(A2AExecutor(agent, stream=True), InMemoryTaskStore(), card)
routes = [*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/")]
c.serve(Starlette(routes=routes), bound, cannot={"data": TEXT_ALONE, "file": TEXT_ALONE, "ask": NO_ASK})
