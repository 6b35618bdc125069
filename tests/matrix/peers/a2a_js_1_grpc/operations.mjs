// @a2a-js/sdk over @grpc/grpc-js: each operation once, and what came of it as a line of JSON.

import { createRequire } from "node:module";

const [modules, url, hook] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const a2a = require("@a2a-js/sdk");
const grpc = require("@grpc/grpc-js");
const { ClientFactory } = require("@a2a-js/sdk/client");
const { GrpcTransportFactory } = require("@a2a-js/sdk/client/grpc");

const factory = new ClientFactory({
  transports: [new GrpcTransportFactory({ grpcChannelCredentials: grpc.credentials.createInsecure() })],
});
const client = await factory.createFromUrl(`${url}/`);

const calling = (skill, args) =>
  a2a.SendMessageRequest.fromJSON({
    message: {
      messageId: crypto.randomUUID(),
      role: "ROLE_USER",
      parts: [{ data: { skill, arguments: args } }],
    },
  });
const stateOf = (status) => status.state.replace("TASK_STATE_", "").toLowerCase();
const shown = (event) => a2a.StreamResponse.toJSON(event);
const statusIn = (event) => (event.task ?? event.statusUpdate).status;

async function refused(call) {
  try {
    await call;
  } catch (error) {
    return error.name;
  }
  return "not refused";
}

async function pushConfigs(taskId) {
  const made = await client.createTaskPushNotificationConfig(
    a2a.TaskPushNotificationConfig.fromJSON({ taskId, url: hook }),
  );
  const named = { taskId, id: made.id };
  const got = await client.getTaskPushNotificationConfig(
    a2a.GetTaskPushNotificationConfigRequest.fromJSON(named),
  );
  const count = async () =>
    (await client.listTaskPushNotificationConfig(
      a2a.ListTaskPushNotificationConfigsRequest.fromJSON({ taskId }),
    )).configs.length;
  const before = await count();
  await client.deleteTaskPushNotificationConfig(
    a2a.DeleteTaskPushNotificationConfigRequest.fromJSON(named),
  );
  return [got.url === hook, before, await count()];
}

const came = {};
const task = a2a.Task.toJSON(await client.sendMessage(calling("echo", { message: "grüße" })));
came.send = [stateOf(task.status), task.artifacts[0].parts[0].text];
const get = (id) => client.getTask(a2a.GetTaskRequest.fromJSON({ id }));
const cancel = (id) => client.cancelTask(a2a.CancelTaskRequest.fromJSON({ id }));
came.get = (await get(task.id)).id === task.id;
const listed = await client.listTasks(a2a.ListTasksRequest.fromJSON({ contextId: task.contextId }));
came.list = listed.tasks.length === 1 && listed.tasks[0].id === task.id;

const states = [];
for await (const event of client.sendMessageStream(
  calling("trigger-long-running-operation", { duration: 300, steps: 15000 }),
)) {
  const { statusUpdate } = shown(event);
  states.push(stateOf(statusIn(shown(event))));
  if (states.at(-1) !== "working" || came.cancel) continue;
  const id = statusUpdate.taskId;
  came.push = await pushConfigs(id);
  const subscribed = client.resubscribeTask(a2a.SubscribeToTaskRequest.fromJSON({ id }));
  const first = shown((await subscribed.next()).value);
  came.cancel = stateOf(a2a.Task.toJSON(await cancel(id)).status);
  let last;
  for await (const next of subscribed) last = stateOf(statusIn(shown(next)));
  came.subscribe = [Object.keys(first)[0], last];
}
came.stream = [states[0], states.at(-1)];
came.errors = [await refused(get("nobodys")), await refused(cancel(task.id))];
console.log(JSON.stringify(came));
process.exit(0);
