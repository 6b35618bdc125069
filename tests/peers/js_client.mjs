// Drives the A2A 1.0 client of @a2a-js/sdk from another process: JSON lines in, JSON lines out.
//
//   node js_client.mjs <package.json of the SDK> <base URL> <"JSONRPC" | "HTTP+JSON"> [<headers as JSON>]
//
// It connects first and answers that as id 0. Then each line on stdin is one call,
//   {"id": n, "op": "card" | "send" | "stream" | "get" | "list" | "cancel" | "subscribe", "args": {...}}
// whose args are the operation's request as A2A JSON, and each line on stdout belongs to one call:
//   {"id": n, "event": ...}                                  a StreamResponse
//   {"id": n, "done": true, "result": ...}                   the last line of a call that succeeded
//   {"id": n, "error": {"code", "message", "data"}}          the last line of a call that did not
// Calls run at the same time. {"op": "stop", "args": {"id": n}} drops the connection of call n and has no
// answer of its own. The end of stdin ends the process.

import { AsyncLocalStorage } from "node:async_hooks";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [sdk, baseUrl, transport, headersJson = "{}"] = process.argv.slice(2);
const headers = JSON.parse(headersJson);

// The SDK is not installed above this file, where `import` would look for it.
const require = createRequire(sdk);
const a2a = require("@a2a-js/sdk");
const { ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory } =
  require("@a2a-js/sdk/client");
const { A2A_ERROR_CODE } = require("@a2a-js/sdk/errors");

const TRANSPORTS = { JSONRPC: JsonRpcTransportFactory, "HTTP+JSON": RestTransportFactory };
const ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo";
const CODE_OF_REASON = {
  ...A2A_ERROR_CODE,
  EXTENDED_AGENT_CARD_NOT_CONFIGURED: A2A_ERROR_CODE.EXTENDED_CARD_NOT_CONFIGURED,
};

// The status of the latest response to each call: the SDK's JSON-RPC transport tells it in prose only.
const calls = new AsyncLocalStorage();

async function notingFetch(url, init) {
  const response = await fetch(url, init);
  calls.getStore().status = response.status;
  return response;
}

// The card resolver takes no service parameters: the headers of its request can only be added here.
const cardFetch = (url, init) => notingFetch(url, { ...init, headers: { ...headers, ...init?.headers } });

// One transport only: `preferredTransports` would silently fall back to another.
const factory = new ClientFactory({
  transports: [new TRANSPORTS[transport]({ fetchImpl: notingFetch })],
  cardResolver: new DefaultAgentCardResolver({ fetchImpl: cardFetch }),
});
let client;

const OPERATIONS = {
  connect: async () => {
    // The SDK resolves the card's path like a link: without the slash it drops the last segment.
    client = await factory.createFromUrl(baseUrl.endsWith("/") ? baseUrl : `${baseUrl}/`);
  },
  card: async (args, options) => a2a.AgentCard.toJSON(await client.getAgentCard(options)),
  send: async (args, options) => {
    const answer = await client.sendMessage(a2a.SendMessageRequest.fromJSON(args), options);
    return "messageId" in answer
      ? { message: a2a.Message.toJSON(answer) }
      : { task: a2a.Task.toJSON(answer) };
  },
  get: async (args, options) =>
    a2a.Task.toJSON(await client.getTask(a2a.GetTaskRequest.fromJSON(args), options)),
  list: async (args, options) =>
    a2a.ListTasksResponse.toJSON(await client.listTasks(a2a.ListTasksRequest.fromJSON(args), options)),
  cancel: async (args, options) =>
    a2a.Task.toJSON(await client.cancelTask(a2a.CancelTaskRequest.fromJSON(args), options)),
  stream: (args, options, emit) =>
    each(client.sendMessageStream(a2a.SendMessageRequest.fromJSON(args), options), emit),
  subscribe: (args, options, emit) =>
    each(client.resubscribeTask(a2a.SubscribeToTaskRequest.fromJSON(args), options), emit),
};

async function each(events, emit) {
  for await (const event of events) emit(a2a.StreamResponse.toJSON(event));
}

const running = new Map();

async function call({ id, op, args = {} }) {
  const abort = new AbortController();
  const answer = (line) => process.stdout.write(`${JSON.stringify({ id, ...line })}\n`);
  running.set(id, abort);
  const store = {};
  try {
    const options = { serviceParameters: headers, signal: abort.signal };
    const operation = () => OPERATIONS[op](args, options, (event) => answer({ event }));
    answer({ done: true, result: await calls.run(store, operation) });
  } catch (error) {
    answer({ error: refusal(error, store.status) });
  } finally {
    running.delete(id);
  }
}

function refusal(error, status) {
  // An error inside a JSON-RPC stream is wrapped in a plain Error that says the same in prose.
  const known = error.cause?.reason ? error.cause : error;
  const details = Array.isArray(known.data) ? known.data : [];
  const metadata = known.metadata ?? details.find((detail) => detail["@type"] === ERROR_INFO)?.metadata;
  return { code: codeOf(known, status), message: messageOf(known), data: metadata ?? null };
}

// A failed fetch says why in its cause only.
function messageOf(error) {
  return error instanceof TypeError && error.cause ? `${error.message}: ${error.cause.message}` : error.message;
}

function codeOf(error, status) {
  if (error.transport === "jsonrpc") return error.envelopeCode;
  // Only a subclass has the agent's reason: the generic class says INTERNAL_ERROR of every refusal.
  if (error.transport === "rest" && error.name !== "A2AError") return CODE_OF_REASON[error.reason] ?? null;
  return status >= 400 ? status : null;
}

await call({ id: 0, op: "connect" });
for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  if (request.op === "stop") running.get(request.args.id)?.abort();
  else call(request);
}
process.exit(0);
