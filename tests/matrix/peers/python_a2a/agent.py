"""python-a2a as an agent: a server of its own, whose answers are those of the test's model."""

from typing import Any

import contract as c
import requests
from python_a2a import A2AServer, AgentCard, AgentSkill, Message, MessageRole, TextContent
from python_a2a.server.http import create_flask_app
from werkzeug.serving import make_server


class Agent(A2AServer):
    def handle_message(self, message: Message) -> Message:
        asked = {"model": "stub", "messages": [{"role": "user", "content": message.content.text}]}
        answer: dict[str, Any] = requests.post(f"{c.MODEL}/chat/completions", json=asked, timeout=None).json()
        if "error" in answer:
            raise RuntimeError(answer["error"]["message"])
        words = answer["choices"][0]["message"]["content"]
        return Message(content=TextContent(text=words), role=MessageRole.AGENT)


bound = c.listener()
port = bound.getsockname()[1]
bound.close()
url = f"http://127.0.0.1:{port}"
skill = AgentSkill(id="chat", name="Chat", description="Says it back.", tags=["test"])
card = AgentCard(
    name="python-a2a", description="Says back what it is told.", url=url, version="1.0.0", skills=[skill]
)
server = make_server("127.0.0.1", port, create_flask_app(Agent(agent_card=card)), threaded=True)
c.say({"url": url, "cannot": {}})
server.serve_forever()
