"""AG2 as an agent: `A2AServer`, its model that of the test."""

import contract as c
from ag2 import Agent
from ag2.a2a import A2AServer
from ag2.config import OpenAIConfig

NO_ASK = "A2AServer asks only for the results of tools that its client provides"
NO_HISTORY = "A2AServer stores no context: clients of AG2 send the whole history with each message"

bound = c.listener()
url = c.url_of(bound)
model = OpenAIConfig(model="stub", api_key="none", base_url=c.MODEL, streaming=True, max_retries=0)
agent = Agent("ag2", config=model)
c.serve(A2AServer(agent).build_jsonrpc(url=url), bound, cannot={"ask": NO_ASK, "turns": NO_HISTORY})
