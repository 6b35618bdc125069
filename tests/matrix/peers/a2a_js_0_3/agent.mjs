// @a2a-js/sdk 0.3 as an agent, over JSON-RPC.

import { createRequire } from "node:module";
import { serve, words } from "../contract.mjs";

// The SDK is not installed above this file, where `import` would look for it.
const require = createRequire(`${process.argv[2]}/`);
const { DefaultRequestHandler, InMemoryTaskStore } = require("@a2a-js/sdk/server");
const { UserBuilder, agentCardHandler, jsonRpcHandler } = require("@a2a-js/sdk/server/express");
const express = require("express");

const said = new Map();

function wordsOf(part) {
  if (part.kind === "file") return Buffer.from(part.file.bytes, "base64").toString();
  return part.kind === "text" ? part.text : JSON.stringify(part.data);
}

class Executor {
  async execute({ taskId, contextId, userMessage, task }, bus) {
    const told = userMessage.parts.map(wordsOf).join(" ");
    said.set(contextId, [...(said.get(contextId) ?? []), told]);
    bus.publish(
      task ?? { kind: "task", id: taskId, contextId, status: { state: "submitted" }, history: [userMessage] },
    );
    const status = (state, text) => {
      const parts = [{ kind: "text", text }];
      const message = { kind: "message", messageId: crypto.randomUUID(), role: "agent", taskId, contextId, parts };
      const now = { state, timestamp: new Date().toISOString(), ...(text && { message }) };
      bus.publish({ kind: "status-update", taskId, contextId, status: now, final: state !== "working" });
    };
    status("working");
    if (told.startsWith("wait")) return;
    if (told.startsWith("ask") && !task) status("input-required", words.question);
    else if (told.startsWith("fail")) status("failed", words.fail_gives);
    else {
      const all = told.startsWith("recall") ? said.get(contextId).join(" | ") : told;
      const artifact = { artifactId: "answer", parts: [{ kind: "text", text: `You said: ${all}` }] };
      bus.publish({ kind: "artifact-update", taskId, contextId, artifact, lastChunk: true });
      status("completed");
    }
    bus.finished();
  }

  async cancelTask(taskId, bus) {
    const status = { state: "canceled", timestamp: new Date().toISOString() };
    bus.publish({ kind: "status-update", taskId, contextId: "", status, final: true });
    bus.finished();
  }
}

serve(express, (app, url) => {
  const card = {
    name: "a2a-js",
    description: "Says back what it is told.",
    protocolVersion: "0.3.0",
    version: "1.0.0",
    url: `${url}/a2a`,
    preferredTransport: "JSONRPC",
    capabilities: { streaming: true },
    defaultInputModes: ["text/plain", "application/json"],
    defaultOutputModes: ["text/plain"],
    skills: [{ id: "chat", name: "Chat", description: "Says it back.", tags: ["test"] }],
  };
  const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), new Executor());
  app.use("/.well-known/agent-card.json", agentCardHandler({ agentCardProvider: requestHandler }));
  app.use("/a2a", jsonRpcHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }));
});
