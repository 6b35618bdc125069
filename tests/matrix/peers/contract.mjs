// The contract of `contract.py` for the scripts that run on Node.js.

import { readFileSync } from "node:fs";

export const words = JSON.parse(readFileSync(new URL("words.json", import.meta.url), "utf8"));

/** Tell the runner something. */
export const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

/** Fail the scenario unless something is so. */
export function check(isSo, value) {
  if (!isSo) throw new Error(typeof value === "string" ? value : JSON.stringify(value));
}

const UNTRIED = "not tried: its script sends no sentence";

/** Run each scenario against a URL, and end the process. */
export async function play(url, scenarios) {
  for (const scenario of words.scenarios) {
    if (scenario === "plain" && !scenarios.plain) say({ scenario, outcome: "untried", words: UNTRIED });
    else say({ scenario, ...(await cameOf(scenarios[scenario], url)) });
  }
  process.exit(0);
}

async function cameOf(scenario, url) {
  let timer;
  const late = new Promise((_, reject) => {
    const words_ = `not done within ${words.scenario_seconds} s`;
    timer = setTimeout(() => reject(new Error(words_)), words.scenario_seconds * 1000);
  });
  try {
    await Promise.race([scenario(url), late]);
    return { outcome: "pass", words: "" };
  } catch (error) {
    console.error(error);
    return { outcome: "fail", words: `${error.name}: ${error.message}`.slice(0, 300) };
  } finally {
    clearTimeout(timer);
  }
}

/** Serve an Express application on a free port of loopback, and say so; `routes` gets its URL, and what notes a stream. */
export function serve(express, routes) {
  const app = express();
  let streams = 0;
  app.use((request, response, next) => {
    const writeHead = response.writeHead;
    response.writeHead = (...args) => {
      const written = writeHead.apply(response, args);
      streams += String(response.getHeader("content-type")).startsWith("text/event-stream");
      return written;
    };
    next();
  });
  app.get("/_streams", (request, response) => response.json(streams));
  const server = app.listen(0, "127.0.0.1", async () => {
    const url = `http://127.0.0.1:${server.address().port}`;
    await routes(app, url, () => (streams += 1));
    say({ url, cannot: {} });
  });
}
