// A host that shows MCP Apps: @modelcontextprotocol/client with the AppBridge of @modelcontextprotocol/ext-apps, and the
// App of that package in the place of a page.
//
//   node js_app_host.mjs <folder with the packages> <URL, or command as a JSON list> <calls>
//
// prints what the server shows, as JSON on one line: its tools, the URIs of their apps, the pages, and what the calls
// (`[[name, arguments], ...]`) give the page.

import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [, , folder, place, calls] = process.argv;
const require = createRequire(join(folder, "package.json"));
const module = (name) => import(pathToFileURL(require.resolve(name)).href);
const { Client, InMemoryTransport, StreamableHTTPClientTransport } = await module("@modelcontextprotocol/client");
const { StdioClientTransport } = await module("@modelcontextprotocol/client/stdio");
const { AppBridge, RESOURCE_MIME_TYPE, getToolUiResourceUri, isToolVisibilityAppOnly } = await module(
  "@modelcontextprotocol/ext-apps/app-bridge",
);
const { App } = await module("@modelcontextprotocol/ext-apps");

const capabilities = { extensions: { "io.modelcontextprotocol/ui": { mimeTypes: [RESOURCE_MIME_TYPE] } } };
const client = new Client({ name: "host", version: "1" }, { capabilities });
const [command, ...args] = place.startsWith("[") ? JSON.parse(place) : [];
await client.connect(
  command ? new StdioClientTransport({ command, args, stderr: "ignore" }) : new StreamableHTTPClientTransport(new URL(place)),
);

const { tools } = await client.listTools();
const links = Object.fromEntries(tools.map((tool) => [tool.name, getToolUiResourceUri(tool) ?? null]));
const pages = {};
for (const uri of new Set(Object.values(links).filter(Boolean))) {
  pages[uri] = (await client.readResource({ uri })).contents;
}
const { resources } = await client.listResources();

const bridge = new AppBridge(client, { name: "host", version: "1" }, { serverTools: {}, serverResources: {} });
const app = new App({ name: "page", version: "1" }, {}, { autoResize: false });
const [ofBridge, ofApp] = InMemoryTransport.createLinkedPair();
await bridge.connect(ofBridge);
await app.connect(ofApp);
const results = [];
for (const [name, given] of JSON.parse(calls)) {
  try {
    results.push([name, await app.callServerTool({ name, arguments: given })]);
  } catch (error) {
    results.push([name, { error: error.message }]);
  }
}
const appOnly = tools.filter(isToolVisibilityAppOnly).map((tool) => tool.name);
const found = JSON.stringify({ tools, links, appOnly, pages, resources, results });
await client.close();
process.stdout.write(`${found}\n`, () => process.exit(0));
