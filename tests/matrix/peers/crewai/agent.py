"""CrewAI as an agent: an agent behind the executor of `crewai.a2a`, its model that of the test."""

import os

import contract as c

os.environ |= {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_DISABLE_TRACKING": "true",
    "CREWAI_TRACING_ENABLED": "false",
}

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.apps import A2AStarletteApplication
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore
from crewai import LLM, Agent
from crewai.a2a import A2AServerConfig
from crewai.a2a.utils.task import cancel, execute

NO_FILE = "it accepts files only if the package crewai-files is installed"
UNNAMED = "its executor reports a task only when the task is done, so a client does not know the id to cancel"
NO_ASK = "its executor ends each task as completed, or with an error"
NO_HISTORY = "its executor makes a new task for the crew from each message, and stores no context"


class Executor(AgentExecutor):
    """What a user writes around the two functions that crewai has for a server."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        await execute(self._agent, context, event_queue)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await cancel(context, event_queue)


bound = c.listener()
url = c.url_of(bound)
agent = Agent(
    role="Echo",
    goal="Say back what you are told.",
    backstory="You repeat.",
    llm=LLM(model="openai/stub", base_url=c.MODEL, api_key="none", max_retries=0),
    a2a=A2AServerConfig(url=url),
    max_retry_limit=0,
)
handler = DefaultRequestHandler(Executor(agent), InMemoryTaskStore())
app = A2AStarletteApplication(agent.to_agent_card(url), handler).build()
c.serve(app, bound, cannot={"file": NO_FILE, "ask": NO_ASK, "cancel": UNNAMED, "turns": NO_HISTORY})
