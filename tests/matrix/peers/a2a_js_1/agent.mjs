// @a2a-js/sdk 1.x as an agent, over JSON-RPC and HTTP+JSON, or over gRPC where MATRIX_BINDING says so.

import { createRequire } from "node:module";
import { serve, words } from "../contract.mjs";

// The SDK is not installed above this file, where `import` would look for it.
const require = createRequire(`${process.argv[2]}/`);
const a2a = require("@a2a-js/sdk");
const { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } = require("@a2a-js/sdk/server");
const { UserBuilder, agentCardHandler, jsonRpcHandler, restHandler } = require("@a2a-js/sdk/server/express");
const express = require("express");

const said = new Map();

function wordsOf(part) {
  if (part.raw !== undefined) return Buffer.from(part.raw, "base64").toString();
  return part.text ?? part.url ?? JSON.stringify(part.data);
}

class Executor {
  async execute({ taskId, contextId, userMessage, task }, bus) {
    const message = a2a.Message.toJSON(userMessage);
    const told = message.parts.map(wordsOf).join(" ");
    said.set(contextId, [...(said.get(contextId) ?? []), told]);
    const begun = { id: taskId, contextId, status: { state: "TASK_STATE_SUBMITTED" }, history: [message] };
    bus.publish(AgentEvent.task(task ?? a2a.Task.fromJSON(begun)));
    const status = (state, text) => {
      const reply = { messageId: crypto.randomUUID(), role: "ROLE_AGENT", taskId, contextId, parts: [{ text }] };
      const now = { state: `TASK_STATE_${state}`, timestamp: new Date().toISOString() };
      const update = { taskId, contextId, status: text ? { ...now, message: reply } : now };
      bus.publish(AgentEvent.statusUpdate(a2a.TaskStatusUpdateEvent.fromJSON(update)));
    };
    status("WORKING");
    if (told.startsWith("wait")) return;
    if (told.startsWith("ask") && !task) status("INPUT_REQUIRED", words.question);
    else if (told.startsWith("fail")) status("FAILED", words.fail_gives);
    else {
      const all = told.startsWith("recall") ? said.get(contextId).join(" | ") : told;
      const artifact = { artifactId: "answer", name: "answer", parts: [{ text: `You said: ${all}` }] };
      const update = { taskId, contextId, artifact, lastChunk: true };
      bus.publish(AgentEvent.artifactUpdate(a2a.TaskArtifactUpdateEvent.fromJSON(update)));
      status("COMPLETED");
    }
    bus.finished();
  }

  async cancelTask(taskId, bus) {
    const update = { taskId, contextId: "", status: { state: "TASK_STATE_CANCELED" } };
    bus.publish(AgentEvent.statusUpdate(a2a.TaskStatusUpdateEvent.fromJSON(update)));
    bus.finished();
  }
}

const overHttp = (url) => [
  { url: `${url}/a2a`, protocolBinding: "JSONRPC", protocolVersion: "1.0" },
  { url: `${url}/rest`, protocolBinding: "HTTP+JSON", protocolVersion: "1.0" },
];

/** Serve a handler over gRPC, and note each stream. */
async function serveGrpc(grpc, port, requestHandler, noteStream) {
  const { A2AService, grpcService } = require("@a2a-js/sdk/server/grpc");
  const service = grpcService({ requestHandler, userBuilder: UserBuilder.noAuthentication });
  for (const name of ["sendStreamingMessage", "subscribeToTask"]) {
    const answer = service[name];
    service[name] = (call) => (noteStream(), answer(call));
  }
  const server = new grpc.Server();
  server.addService(A2AService, service);
  const credentials = grpc.ServerCredentials.createInsecure();
  await new Promise((done, failed) =>
    server.bindAsync(`127.0.0.1:${port}`, credentials, (error) => (error ? failed(error) : done())),
  );
}

async function freePort() {
  const server = require("node:net").createServer();
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

serve(express, async (app, url, noteStream) => {
  const port = process.env.MATRIX_BINDING === "GRPC" ? await freePort() : 0;
  const card = a2a.AgentCard.fromJSON({
    name: "a2a-js",
    description: "Says back what it is told.",
    version: "1.0.0",
    supportedInterfaces: port
      ? [{ url: `127.0.0.1:${port}`, protocolBinding: "GRPC", protocolVersion: "1.0" }]
      : overHttp(url),
    capabilities: { streaming: true },
    defaultInputModes: ["text/plain", "application/json"],
    defaultOutputModes: ["text/plain"],
    skills: [{ id: "chat", name: "Chat", description: "Says it back.", tags: ["test"] }],
  });
  const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), new Executor());
  const userBuilder = UserBuilder.noAuthentication;
  app.use("/.well-known/agent-card.json", agentCardHandler({ agentCardProvider: requestHandler }));
  app.use("/a2a", jsonRpcHandler({ requestHandler, userBuilder }));
  app.use("/rest", restHandler({ requestHandler, userBuilder }));
  if (port) await serveGrpc(require("@grpc/grpc-js"), port, requestHandler, noteStream);
});
