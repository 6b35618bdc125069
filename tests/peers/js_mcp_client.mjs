// A person with a client built on the TypeScript SDK, who logs in wherever the client asks for it. The SDK is
// @modelcontextprotocol/client, or @modelcontextprotocol/sdk, which was there before it.
//
//   node js_mcp_client.mjs <package.json of the SDK> <URL of the server> <redirect URI> <person> <calls>
//
// calls the tools (`[[name, arguments], ...]`) one after the other, and prints on one line what came of each: its
// content, and the scope of the token that the client had by then; before them the client's id.

import { createRequire } from "node:module";

const [, , manifest, server, redirectUrl, person, calls] = process.argv;
const require = createRequire(manifest);
const { name } = require(manifest);
const parts = name.endsWith("/sdk") ? ["/client/index.js", "/client/streamableHttp.js", "/client/auth.js"] : [""];
const sdk = Object.assign({}, ...parts.map((part) => require(name + part)));

const kept = {};
const provider = {
  redirectUrl,
  clientMetadata: { redirect_uris: [redirectUrl], client_name: "a client", application_type: "native" },
  clientInformation: () => kept.client,
  saveClientInformation: (client) => { kept.client = client; },
  tokens: () => kept.tokens,
  saveTokens: (tokens) => { kept.tokens = tokens; },
  saveCodeVerifier: (verifier) => { kept.verifier = verifier; },
  codeVerifier: () => kept.verifier,
  saveDiscoveryState: (found) => { kept.found = found; },
  discoveryState: () => kept.found,
  redirectToAuthorization: (url) => { kept.page = url; },
};

// What a browser does: it follows redirects up to the client's own, and keeps cookies.
async function browsed() {
  const cookies = new Map([["person", person]]);
  let url = String(kept.page);
  while (!url.startsWith(redirectUrl)) {
    const cookie = [...cookies].map((pair) => pair.join("=")).join("; ");
    const page = await fetch(url, { redirect: "manual", headers: { cookie } });
    for (const line of page.headers.getSetCookie()) cookies.set(...line.split(";")[0].split("="));
    const next = page.headers.get("location");
    if (!next) throw new Error(`${url} answered ${page.status}: ${await page.text()}`);
    url = new URL(next, url).href;
  }
  return new URL(url).searchParams;
}

let transport;
async function loggedIn(work) {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof sdk.UnauthorizedError)) throw error;
    const came = await browsed();
    await transport.finishAuth(parts.length > 1 ? came.get("code") : came);
    return await work();
  }
}

const client = new sdk.Client({ name: "a client", version: "1.0" });
await loggedIn(async () => {
  transport = new sdk.StreamableHTTPClientTransport(new URL(server), { authProvider: provider });
  await client.connect(transport);
});
const came = [];
for (const [name, args] of JSON.parse(calls)) {
  const { content } = await loggedIn(() => client.callTool({ name, arguments: args }));
  came.push({ content, scope: kept.tokens.scope });
}
await client.close();
console.log(JSON.stringify({ client_id: kept.client.client_id, came }));
