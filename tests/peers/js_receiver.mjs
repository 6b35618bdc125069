// A receiver of push notifications built on @a2a-js/sdk: it takes what its StreamResponse reads, with the right token.
// Prints its port, and then a line of JSON for each notification: which event it is, and the state of its task.
import { createServer } from "node:http";
import { createRequire } from "node:module";

// The SDK is not installed above this file, where `import` would look for it.
const { StreamResponse, taskStateToJSON } = createRequire(process.argv[2])("@a2a-js/sdk");
const token = process.argv[3];

function stateOf({ $case, value }) {
  return $case === "artifactUpdate" ? "" : taskStateToJSON(value.status.state);
}

const server = createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  let payload;
  try {
    payload = StreamResponse.fromJSON(JSON.parse(Buffer.concat(chunks).toString())).payload;
  } catch (error) {
    console.error(error);
  }
  const isGood = payload && request.headers["x-a2a-notification-token"] === token;
  response.writeHead(isGood ? 204 : 400).end();
  if (isGood) console.log(JSON.stringify([payload.$case, stateOf(payload)]));
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
