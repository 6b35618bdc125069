// An agent built on the server of @a2a-js/sdk, to be a stranger in tests: one skill for each thing it does.
//
//   node js_agent.mjs <package.json of the SDK>
//
// prints its URL on one line and serves until its stdin ends. The metadata of the first message of a task names
// the skill (`skillId`):
//   plain   an artifact with the text
//   say     a Message, without a task
//   stream  three WORKING updates, an artifact in three chunks
//   ask     asks in words, then gives the answer back
//   fail    fails
//   slow    an artifact with the text, once a line comes from stdin
// It sends push notifications, and prints "set" and "deleted" when a client sets a webhook and deletes it.

import { createRequire } from "node:module";

// The SDK is not installed above this file, where `import` would look for it.
const require = createRequire(process.argv[2]);
const a2a = require("@a2a-js/sdk");
const {
  AgentEvent, DefaultRequestHandler, InMemoryPushNotificationStore, InMemoryTaskStore,
} = require("@a2a-js/sdk/server");
const { UserBuilder, agentCardHandler, jsonRpcHandler, restHandler } = require("@a2a-js/sdk/server/express");
const express = require("express");

const SKILLS = ["plain", "say", "stream", "ask", "fail", "slow"];
const skillOf = new Map();
let release;
const released = new Promise((resolve) => (release = resolve));

class Webhooks extends InMemoryPushNotificationStore {
  async save(...given) {
    await super.save(...given);
    console.log("set");
  }

  async delete(...given) {
    await super.delete(...given);
    console.log("deleted");
  }
}

class Executor {
  async execute(context, bus) {
    const { taskId, contextId, userMessage, task } = context;
    const said = a2a.Message.toJSON(userMessage);
    const text = said.parts.map((part) => part.text ?? "").join("");
    const skill = skillOf.get(taskId) ?? said.metadata?.skillId ?? "plain";
    const words = (value) => ({
      messageId: crypto.randomUUID(), role: "ROLE_AGENT", taskId, contextId, parts: [{ text: value }],
    });
    if (skill === "say") {
      const { taskId: _, ...message } = words(`Just so: ${text}`);
      bus.publish(AgentEvent.message(a2a.Message.fromJSON(message)));
      return bus.finished();
    }
    skillOf.set(taskId, skill);
    const begun = { id: taskId, contextId, status: { state: "TASK_STATE_SUBMITTED" }, history: [said] };
    bus.publish(AgentEvent.task(task ?? a2a.Task.fromJSON(begun)));
    const status = (state, value) => {
      const now = { state: `TASK_STATE_${state}`, timestamp: new Date().toISOString() };
      const update = { taskId, contextId, status: value ? { ...now, message: words(value) } : now };
      bus.publish(AgentEvent.statusUpdate(a2a.TaskStatusUpdateEvent.fromJSON(update)));
    };
    const give = (value, more = {}) => {
      const artifact = { artifactId: "answer", name: "answer", parts: [{ text: value }] };
      const update = { taskId, contextId, artifact, ...more };
      bus.publish(AgentEvent.artifactUpdate(a2a.TaskArtifactUpdateEvent.fromJSON(update)));
    };
    status("WORKING");
    if (skill === "ask" && !task) {
      status("INPUT_REQUIRED", "Which colour?");
      return bus.finished();
    }
    if (skill === "fail") {
      status("FAILED", "Out of paper");
      return bus.finished();
    }
    if (skill === "slow") await released;
    if (skill === "stream") {
      for (const step of ["reading", "thinking", "writing"]) status("WORKING", step);
      for (const [number, chunk] of ["one ", "two ", "three"].entries())
        give(chunk, { append: number > 0, lastChunk: number === 2 });
    } else {
      give(`You said: ${text}`);
    }
    status("COMPLETED");
    bus.finished();
  }

  async cancelTask(taskId, bus) {
    const status = { state: "TASK_STATE_CANCELED" };
    bus.publish(AgentEvent.statusUpdate(a2a.TaskStatusUpdateEvent.fromJSON({ taskId, contextId: "", status })));
  }
}

const app = express();
const server = app.listen(0, "127.0.0.1", () => {
  const url = `http://127.0.0.1:${server.address().port}`;
  const card = a2a.AgentCard.fromJSON({
    name: "js agent",
    description: "Does what agents do.",
    version: "1.0.0",
    supportedInterfaces: [
      { url: `${url}/a2a`, protocolBinding: "JSONRPC", protocolVersion: "1.0" },
      { url: `${url}/rest`, protocolBinding: "HTTP+JSON", protocolVersion: "1.0" },
    ],
    capabilities: { streaming: true, pushNotifications: true },
    defaultInputModes: ["text/plain"],
    defaultOutputModes: ["text/plain"],
    skills: SKILLS.map((id) => ({ id, name: id, description: `Does ${id}.`, tags: ["test"] })),
  });
  const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), new Executor(), undefined, new Webhooks());
  const userBuilder = UserBuilder.noAuthentication;
  app.use("/.well-known/agent-card.json", agentCardHandler({ agentCardProvider: requestHandler }));
  app.use("/a2a", jsonRpcHandler({ requestHandler, userBuilder }));
  app.use("/rest", restHandler({ requestHandler, userBuilder }));
  console.log(url);
});
process.stdin.on("end", () => process.exit(0)).on("data", () => release());
