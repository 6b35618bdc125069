"""BeeAI Framework as an agent: `A2AServer`, its model that of the test."""

import contract as c
from beeai_framework.adapters.a2a import A2AServer, A2AServerConfig
from beeai_framework.adapters.openai import OpenAIChatModel
from beeai_framework.agents.tool_calling import ToolCallingAgent
from beeai_framework.memory import UnconstrainedMemory
from beeai_framework.serve.utils import LRUMemoryManager

NO_ASK = "its executors end each task as completed, failed or canceled"

bound = c.listener()
port = bound.getsockname()[1]
bound.close()
model = OpenAIChatModel("stub", base_url=c.MODEL, api_key="none")
agent = ToolCallingAgent(llm=model, memory=UnconstrainedMemory())
url = f"http://127.0.0.1:{port}"
server = A2AServer(
    config=A2AServerConfig(host="127.0.0.1", port=port), memory_manager=LRUMemoryManager(maxsize=100)
)
server.register(agent, name="beeai", description="Says back what it is told.", url=url)
c.serve_by(server.serve, url, cannot={"ask": NO_ASK})
