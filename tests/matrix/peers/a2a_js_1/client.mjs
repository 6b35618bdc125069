// @a2a-js/sdk 1.x as a client, over JSON-RPC, or over the binding in MATRIX_BINDING.

import { createRequire } from "node:module";
import { check, play, words } from "../contract.mjs";

// The SDK is not installed above this file, where `import` would look for it.
const require = createRequire(`${process.argv[2]}/`);
const a2a = require("@a2a-js/sdk");
const { ClientFactory, DefaultAgentCardResolver } = require("@a2a-js/sdk/client");

const factory = process.env.MATRIX_BINDING === "GRPC" ? grpcFactory() : new ClientFactory();
const client = (url) => factory.createFromUrl(`${url}/`);

function grpcFactory() {
  const { credentials } = require("@grpc/grpc-js");
  const { GrpcTransportFactory } = require("@a2a-js/sdk/client/grpc");
  const transport = new GrpcTransportFactory({ grpcChannelCredentials: credentials.createInsecure() });
  return new ClientFactory({ transports: [transport] });
}

const request = (parts, more = {}) =>
  a2a.SendMessageRequest.fromJSON({
    message: { messageId: crypto.randomUUID(), role: "ROLE_USER", parts, ...more },
  });

async function sent(url, parts, more) {
  const answer = await (await client(url)).sendMessage(request(parts, more));
  return a2a.Task.toJSON(answer);
}

function given(task) {
  check(task.status.state === "TASK_STATE_COMPLETED", task.status);
  return task.artifacts.flatMap((artifact) => artifact.parts);
}

const textOf = (parts) => (parts ?? []).map((part) => part.text ?? "").join("");
const same = (one, other) => check(JSON.stringify(one) === JSON.stringify(other), one);

async function follow(url, text, each) {
  const there = await client(url);
  for await (const event of there.sendMessageStream(request([{ text }])))
    await each(a2a.StreamResponse.toJSON(event), there);
}

await play(process.argv[3], {
  card: async (url) => {
    const card = await new DefaultAgentCardResolver().resolve(`${url}/`);
    same(card.skills.map((skill) => skill.id).sort(), [...words.skills].sort());
  },
  text: async (url) => same(textOf(given(await sent(url, [{ text: words.text }]))), words.text_gives),
  data: async (url) => {
    const parts = given(await sent(url, [{ data: words.data }]));
    same(parts.filter((part) => part.data !== undefined).map((part) => part.data), [words.data_gives]);
  },
  file: async (url) => {
    const file = { raw: words.file_base64, filename: words.file_name, mediaType: words.file_type };
    const parts = given(await sent(url, [{ data: { skill: words.file_skill, arguments: {} } }, file]));
    same(parts.filter((part) => part.raw !== undefined).map((part) => part.raw), [words.file_base64]);
  },
  stream: async (url) => {
    const seen = [];
    const gave = [];
    await follow(url, words.stream, ({ statusUpdate, artifactUpdate }) => {
      if (statusUpdate?.status.message) seen.push(textOf(statusUpdate.status.message.parts));
      if (artifactUpdate) gave.push(textOf(artifactUpdate.artifact.parts));
    });
    same(seen.slice(0, 3), words.steps);
    same(gave, [words.stream_gives]);
  },
  ask: async (url) => {
    const task = await sent(url, [{ text: words.ask }]);
    check(task.status.state === "TASK_STATE_INPUT_REQUIRED", task.status);
    check(textOf(task.status.message.parts).includes(words.question), task.status);
    same(textOf(given(await sent(url, [{ text: words.answer }], { taskId: task.id }))), words.ask_gives);
  },
  fail: async (url) => {
    const task = await sent(url, [{ text: words.fail }]);
    check(task.status.state === "TASK_STATE_FAILED", task.status);
    check(textOf(task.status.message.parts).includes(words.fail_gives), task.status);
  },
  cancel: async (url) => {
    const states = [];
    let isCancelled = false;
    await follow(url, words.cancel, async ({ task, statusUpdate }, there) => {
      states.push((task ?? statusUpdate)?.status.state);
      if (!statusUpdate?.status.message || isCancelled) return;
      isCancelled = true;
      const ended = await there.cancelTask(a2a.CancelTaskRequest.fromJSON({ id: statusUpdate.taskId }));
      same(a2a.Task.toJSON(ended).status.state, "TASK_STATE_CANCELED");
    });
    same(states.at(-1), "TASK_STATE_CANCELED");
  },
  turns: async (url) => {
    const first = await sent(url, [{ text: words.turns[0] }]);
    const second = await sent(url, [{ text: words.turns[1] }], { contextId: first.contextId });
    same([textOf(given(first)), textOf(given(second))], words.turns_give);
    check(first.contextId === second.contextId && first.id !== second.id, [first.id, second.id]);
  },
});
