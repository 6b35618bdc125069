// @a2a-js/sdk 0.3 as a client, over JSON-RPC.

import { createRequire } from "node:module";
import { check, play, words } from "../contract.mjs";

// The SDK is not installed above this file, where `import` would look for it.
const require = createRequire(`${process.argv[2]}/`);
const { ClientFactory, DefaultAgentCardResolver } = require("@a2a-js/sdk/client");

const client = (url) => new ClientFactory().createFromUrl(`${url}/`);
const text = (value) => ({ kind: "text", text: value });

const params = (parts, more = {}) => ({
  message: { kind: "message", messageId: crypto.randomUUID(), role: "user", parts, ...more },
});

const sent = async (url, parts, more) => (await client(url)).sendMessage(params(parts, more));

function given(task) {
  check(task.status.state === "completed", task.status);
  return task.artifacts.flatMap((artifact) => artifact.parts);
}

const textOf = (parts) => parts.map((part) => part.text ?? "").join("");
const same = (one, other) => check(JSON.stringify(one) === JSON.stringify(other), one);

async function follow(url, words_, each) {
  const there = await client(url);
  for await (const event of there.sendMessageStream(params([text(words_)]))) await each(event, there);
}

await play(process.argv[3], {
  card: async (url) => {
    const card = await new DefaultAgentCardResolver().resolve(`${url}/`);
    same(card.skills.map((skill) => skill.id).sort(), [...words.skills].sort());
  },
  text: async (url) => same(textOf(given(await sent(url, [text(words.text)]))), words.text_gives),
  data: async (url) => {
    const parts = given(await sent(url, [{ kind: "data", data: words.data }]));
    same(parts.filter((part) => part.kind === "data").map((part) => part.data), [words.data_gives]);
  },
  file: async (url) => {
    const call = { kind: "data", data: { skill: words.file_skill, arguments: {} } };
    const content = { bytes: words.file_base64, name: words.file_name, mimeType: words.file_type };
    const parts = given(await sent(url, [call, { kind: "file", file: content }]));
    same(parts.filter((part) => part.kind === "file").map((part) => part.file.bytes), [words.file_base64]);
  },
  stream: async (url) => {
    const seen = [];
    const gave = [];
    await follow(url, words.stream, (event) => {
      if (event.kind === "status-update" && event.status.message) seen.push(textOf(event.status.message.parts));
      if (event.kind === "artifact-update") gave.push(textOf(event.artifact.parts));
    });
    same(seen.slice(0, 3), words.steps);
    same(gave, [words.stream_gives]);
  },
  ask: async (url) => {
    const task = await sent(url, [text(words.ask)]);
    check(task.status.state === "input-required", task.status);
    check(textOf(task.status.message.parts).includes(words.question), task.status);
    const ids = { taskId: task.id, contextId: task.contextId };
    same(textOf(given(await sent(url, [text(words.answer)], ids))), words.ask_gives);
  },
  fail: async (url) => {
    const task = await sent(url, [text(words.fail)]);
    check(task.status.state === "failed", task.status);
    check(textOf(task.status.message.parts).includes(words.fail_gives), task.status);
  },
  cancel: async (url) => {
    const states = [];
    let isCancelled = false;
    await follow(url, words.cancel, async (event, there) => {
      states.push(event.status?.state);
      if (event.kind !== "status-update" || !event.status.message || isCancelled) return;
      isCancelled = true;
      same((await there.cancelTask({ id: event.taskId })).status.state, "canceled");
    });
    same(states.at(-1), "canceled");
  },
  turns: async (url) => {
    const first = await sent(url, [text(words.turns[0])]);
    const second = await sent(url, [text(words.turns[1])], { contextId: first.contextId });
    same([textOf(given(first)), textOf(given(second))], words.turns_give);
    check(first.contextId === second.contextId && first.id !== second.id, [first.id, second.id]);
  },
});
