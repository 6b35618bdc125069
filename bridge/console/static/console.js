// The script of the console. It sends forms as JSON, and shows the news of one stream. Words of peers are text here,
// too: nothing is made of markup, and the pages forbid it (Trusted Types).

const { root, csrf, watch } = document.body.dataset;

async function post(path, body) {
  const answer = await fetch(root + path, {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "application/json", "X-CSRF-Token": csrf },
    body: JSON.stringify(body),
  });
  if (answer.status === 401 && path !== "/sign-in") location.assign(root);
  return answer;
}

async function told(answer) {
  try {
    return await answer.json();
  } catch {
    return { error: { message: `The bridge answered ${answer.status}` } };
  }
}

function say(words) {
  const place = document.getElementById("said");
  place.textContent = words;
  place.hidden = false;
  setTimeout(() => { place.hidden = true; }, 8000);
}

// A button that is disabled loses the focus. It gets it back, unless something else has it by then.
function focusAgain(button) {
  if (document.activeElement === document.body) button?.focus();
}

// Forms

// A script changes long whole numbers. What was typed is sent, or nothing.
function exact(text, value) {
  if (/^\s*-?\d+\s*$/.test(text) && !Number.isSafeInteger(value))
    throw new RangeError(`A browser changes whole numbers beyond ${Number.MAX_SAFE_INTEGER}: use another client`);
  return value;
}

const parsed = (text) =>
  JSON.parse(text, (_, value, from) => (typeof value === "number" ? exact(from?.source ?? `${value}`, value) : value));

// What is no number is refused here: JSON has no value for it, so the bridge would be told of nothing.
function numberOf(one) {
  const text = one.value.trim();
  if (text === "") return undefined;
  const value = /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text) ? Number(text) : NaN;
  const isWhole = one.dataset.type === "integer";
  if (!Number.isFinite(value) || (isWhole && !Number.isInteger(value)))
    throw new RangeError(isWhole ? "This takes a whole number, such as 5" : "This takes a number, such as 2.5");
  return exact(text, value);
}

const readers = {
  string: (one) => (one.value === "" && !one.required ? undefined : one.value),
  number: numberOf,
  integer: numberOf,
  boolean: (one) => ({ true: true, false: false })[one.value],
  choice: (one) => (one.value === "" ? undefined : parsed(one.value)),
  json: (one) => (one.value.trim() === "" ? undefined : parsed(one.value)),
};

function valuesOf(form) {
  const found = {};
  for (const one of form.querySelectorAll("[data-type]")) {
    if (one.matches("fieldset")) {
      const chosen = [...one.querySelectorAll("input:checked")].map((box) => JSON.parse(box.value));
      if (chosen.length || one.dataset.required) found[one.dataset.name] = chosen;
      continue;
    }
    let value;
    try {
      value = readers[one.dataset.type](one);
    } catch (fault) {
      const message = fault instanceof RangeError ? fault.message : "This is not valid JSON: texts and keys need double quotes";
      throw { question: form.dataset.question, name: one.dataset.name, message };
    }
    if (value !== undefined) found[one.dataset.name] = value;
  }
  return found;
}

function show(form, problems, words) {
  for (const one of form.querySelectorAll("[data-error-of]")) {
    one.hidden = true;
    one.textContent = "";
  }
  for (const one of form.querySelectorAll("[aria-invalid]")) one.removeAttribute("aria-invalid");
  const left = [];
  let first = null;
  for (const { question, name, message } of problems) {
    const asked = [...form.querySelectorAll("[data-question]")].find((one) => one.dataset.question === question);
    const within = asked ?? form;
    const place = [...within.querySelectorAll("[data-error-of]")].find((one) => one.dataset.errorOf === name);
    if (!place) {
      left.push(name ? `${name}: ${message}` : message);
      continue;
    }
    place.textContent = place.textContent ? `${place.textContent}\n${message}` : message;
    place.hidden = false;
    const field = [...within.querySelectorAll("[data-name]")].find((one) => one.dataset.name === name);
    field?.setAttribute("aria-invalid", "true");
    first ??= field;
  }
  if (words && !problems.length) left.unshift(words);
  const all = form.querySelector(":scope > .error[role=alert]");
  all.textContent = left.join("\n");
  all.hidden = !left.length;
  (first?.matches("fieldset") ? first.querySelector("input") : first)?.focus();
}

function bodyOf(form, action) {
  if (form.dataset.kind === "plain") return Object.fromEntries(new FormData(form));
  if (form.dataset.kind === "answer") {
    const answers = {};
    for (const one of action === "accept" ? form.querySelectorAll("[data-question]") : [])
      answers[one.dataset.question] = valuesOf(one);
    return { mark: form.dataset.mark, action, answers };
  }
  if (form.round) {
    const { state, questions } = form.round;
    const contents = (one) => valuesOf([...form.querySelectorAll("[data-question]")].find((place) => place.dataset.question === one.key));
    const answerTo = (one) => (action === "accept" ? { action, content: contents(one) } : { action });
    return {
      arguments: form.round.arguments,
      state,
      answers: Object.fromEntries(questions.map((one) => [one.key, answerTo(one)])),
      asked: Object.fromEntries(questions.map((one) => [one.key, one.schema])),
    };
  }
  return { arguments: valuesOf(form) };
}

// The forms of questions that come with a result. templates/forms.html makes those of tasks in the same way.

function made(name, more = {}, ...inner) {
  const one = Object.assign(document.createElement(name), more);
  one.append(...inner);
  return one;
}

function inputOf(one, id) {
  const options = { choice: one.options, boolean: [{ value: "true", label: "yes" }, { value: "false", label: "no" }] }[one.is];
  if (options) {
    const choices = [{ value: "", label: "–" }, ...options].map(({ value, label }) => made("option", { value, selected: value === one.value }, label));
    return made("select", { id }, ...choices);
  }
  if (one.is === "words" || one.is === "json") return made("textarea", { id, rows: one.is === "json" ? 3 : 1, value: one.value, placeholder: one.is === "json" ? "JSON" : "" });
  if (one.is === "text") return made("input", { id, type: one.input, placeholder: one.example, value: one.value });
  return made("input", { id, inputMode: "decimal", autocomplete: "off", value: one.value });
}

function fieldOf(one, id) {
  const kind = one.is === "choices" ? "any of these" : one.is === "choice" ? "one of these" : one.type;
  const label = [one.label, " ", made("span", { className: "type" }, kind + (one.required ? ", required" : ""))];
  const hint = one.hint ? [made("p", { className: "hint", id: `${id}-hint` }, one.hint)] : [];
  const error = made("p", { className: "error", id: `${id}-error`, hidden: true });
  error.dataset.errorOf = one.name;
  let input;
  let field;
  if (one.is === "choices") {
    const boxes = one.options.map(({ value, label: words }) => made("label", {}, made("input", { type: "checkbox", value, checked: one.value.includes(value) }), " ", words));
    field = input = made("fieldset", { className: "field" }, made("legend", {}, ...label), ...hint, ...boxes, error);
    if (one.required) input.dataset.required = "yes";
  } else {
    input = inputOf(one, id);
    input.required = one.required;
    field = made("div", { className: "field" }, made("label", { htmlFor: id }, ...label), ...hint, input, error);
  }
  input.dataset.type = ["text", "words"].includes(one.is) ? "string" : one.is;
  input.dataset.name = one.name;
  input.setAttribute("aria-describedby", `${one.hint ? `${id}-hint ` : ""}${id}-error`);
  return field;
}

function questionForm(form, { state, questions }, given) {
  const blocks = questions.map((one, place) => {
    const words = made("div", { className: "words question" }, one.words);
    const block = made("div", {}, words, ...one.fields.map((field, number) => fieldOf(field, `round-${place}-${number}`)));
    if (one.mode === "url") {
      const link = one.web ? made("a", { href: one.web, rel: "noreferrer noopener", target: "_blank" }, one.url) : made("code", { className: "wrap" }, one.url);
      words.after(made("p", {}, link));
    }
    block.dataset.question = one.key;
    return block;
  });
  const yes = questions.every((one) => one.mode === "url") ? "I have done that" : questions.some((one) => one.fields.length) ? "Answer" : "Allow";
  const button = (value, words, className = "") => made("button", { type: "submit", value, className }, words);
  const alert = made("p", { className: "error", hidden: true });
  alert.setAttribute("role", "alert");
  const actions = made("div", { className: "actions" }, button("accept", yes), button("decline", "Decline", "second"), button("cancel", "Cancel the question", "second"));
  const asking = made("form", { className: "card" }, ...blocks, alert, actions);
  Object.assign(asking.dataset, { action: form.dataset.action, kind: "round", follow: "yes" });
  asking.round = { state, questions, arguments: given };
  asking.begun = form.begun ?? form;
  sends(asking);
  return asking;
}

const RAW_MOST = 100000; // characters of a result that are shown as JSON; the file has all of it
const REPORTS_MOST = 200; // reports of progress that are shown; those before are left out
let wholeResult = "";

function beginResult() {
  const place = document.getElementById("result");
  place.querySelector("h2").textContent = "Running";
  for (const part of ["ol", "div"]) place.querySelector(part).replaceChildren();
  place.querySelector("pre").textContent = "";
  place.querySelector(".whole").hidden = true;
  place.hidden = false;
}

function showProgress({ at, of, words }) {
  const list = document.querySelector("#result ol");
  const item = document.createElement("li");
  item.textContent = [at === null ? "" : of === null ? `${at}` : `${at} of ${of}`, words].filter(Boolean).join(": ");
  list.append(item);
  if (list.children.length > REPORTS_MOST) list.firstElementChild.remove();
}

function showResult(form, { asks, failed, parts, raw }, given) {
  show(form, []);
  const place = document.getElementById("result");
  place.querySelector("h2").textContent = asks ? "The agent asks" : failed ? "The tool failed" : "Result";
  place.querySelector("div").replaceChildren(...(asks ? [questionForm(form, asks, given)] : parts.map(partOf)));
  const left = raw.length - RAW_MOST;
  place.querySelector("pre").textContent = left > 0 ? `${raw.slice(0, RAW_MOST)}\n… ${left} more characters are in the file` : raw;
  URL.revokeObjectURL(wholeResult);
  wholeResult = URL.createObjectURL(new Blob([raw], { type: "application/json" }));
  const whole = place.querySelector(".whole");
  whole.href = wholeResult;
  whole.hidden = false;
  place.hidden = false;
}

// Runs a tool of an MCP server, and shows what it tells meanwhile.
async function followCall(asking, answer, given) {
  const form = asking.begun ?? asking; // the form of a question goes as its call goes on
  beginResult();
  for await (const { progress, result, refused } of events(answer.body)) {
    if (progress) showProgress(progress);
    if (result) return showResult(form, result, given);
    if (refused) {
      document.getElementById("result").hidden = true;
      return show(form, [], refused.message);
    }
  }
  document.getElementById("result").hidden = true;
  show(form, [], "The result will not come here: the bridge ended, or your sign-in did");
}

function tableOf({ columns, rows, left }) {
  const cell = (name, value) => Object.assign(document.createElement(name), { textContent: value });
  const row = (name, values) => {
    const made = document.createElement("tr");
    made.append(...values.map((value) => cell(name, value ?? "–")));
    return made;
  };
  const table = document.createElement("table");
  const head = table.createTHead();
  head.append(row("th", columns));
  for (const one of head.querySelectorAll("th")) one.scope = "col";
  table.createTBody().append(...rows.map((values) => row("td", values)));
  const around = Object.assign(document.createElement("div"), { className: "scroll", tabIndex: 0, role: "group", ariaLabel: "A table of the result" });
  around.append(table);
  if (left) around.append(cell("p", `${left} more rows are in the file of the whole result.`));
  return around;
}

function partOf(part) {
  const made = (name, text, more = {}) => Object.assign(document.createElement(name), { textContent: text }, more);
  if (part.is === "text") {
    const words = made("div", part.text, { className: "words" });
    if (part.cut) words.append(made("p", `${part.cut} more characters are in the file of the whole result.`, { className: "quiet" }));
    return words;
  }
  if (part.is === "audio") return made("audio", "", { src: part.file, controls: true, preload: "metadata", ariaLabel: "A sound of the result" });
  if (part.is === "table") return tableOf(part);
  if (part.is === "left") return made("p", `Not shown, but in the file of the whole result: ${part.name}`, { className: "quiet" });
  if (part.is === "image") return made("img", "", { src: part.file, alt: `An image of the result: ${part.name}`, title: part.name });
  if (part.is === "file") return made("a", `Save ${part.name}`, { href: part.file, download: part.name });
  if (part.is === "link") return part.web ? made("a", part.url, { href: part.web, rel: "noreferrer noopener" }) : made("code", part.url);
  return made("pre", part.text);
}

function showExplanation(form, words) {
  show(form, []);
  const place = form.querySelector(".explained");
  place.textContent = words;
  place.hidden = false;
}

function sends(form) {
  form.noValidate = form.dataset.kind !== "plain";
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const buttons = [...form.querySelectorAll("button")];
    let body;
    try {
      body = bodyOf(form, event.submitter?.value);
    } catch (problem) {
      show(form, [problem]);
      return;
    }
    for (const button of buttons) button.disabled = true;
    try {
      const answer = await post(form.dataset.action, form.dataset.follow ? { ...body, live: true } : body);
      if (answer.ok && answer.headers.get("Content-Type") === "text/event-stream") {
        await followCall(form, answer, body.arguments);
        return;
      }
      const said = await told(answer);
      if (answer.ok && said.explained !== undefined) showExplanation(form, said.explained);
      else if (answer.ok && said.parts) showResult(form, said, body.arguments);
      else if (answer.ok) location.assign(said.to);
      else show(form, said.problems ?? [], said.error?.message ?? "That did not work");
    } catch {
      show(form, [], "The bridge does not answer");
    } finally {
      for (const button of buttons) button.disabled = false;
      focusAgain(event.submitter);
    }
  });
}

for (const form of document.querySelectorAll("form[data-action]")) sends(form);

// The lines for a shell follow what is typed. The bridge makes them, so that only it knows how to quote.

for (const form of document.querySelectorAll("form[data-lines]")) {
  const are = document.getElementById("lines-are");
  let timer = 0;
  let turn = 0;
  const follow = async () => {
    const mine = ++turn;
    try {
      const answer = await post(form.dataset.lines, bodyOf(form));
      const lines = await answer.json();
      if (mine !== turn || !answer.ok) return;
      document.getElementById("line-call").textContent = lines.call;
      if (lines.curl) document.getElementById("line-curl").textContent = lines.curl;
      are.textContent = "With what the form holds.";
    } catch {
      if (mine === turn) are.textContent = "With what the form held before: its values cannot be read now.";
    }
  };
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(follow, 200);
  });
}

for (const button of document.querySelectorAll("button[data-post]")) {
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      const answer = await post(button.dataset.post, {});
      const said = await told(answer);
      if (answer.ok) location.assign(said.to);
      else say(said.error?.message ?? "That did not work");
    } catch {
      say("The bridge does not answer");
    } finally {
      button.disabled = false;
      focusAgain(button);
    }
  });
}

for (const button of document.querySelectorAll("button[data-copy]")) {
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    say("Copied");
  });
}

// News: one stream for this tab. It is a POST, so that it says where it comes from, as every form does.

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ""; ; ) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const data = text.slice(0, end).split("\n").filter((line) => line.startsWith("data: "));
      if (data.length) yield JSON.parse(data.map((line) => line.slice(6)).join("\n"));
    }
  }
}

function showNumbers(numbers) {
  for (const place of document.querySelectorAll("[data-live]")) {
    const value = numbers[place.dataset.live];
    if (value === undefined) continue;
    place.textContent = value;
    if (place.classList.contains("badge")) place.hidden = value === 0;
  }
}

const PAUSES = new Set(["completed", "failed", "canceled", "rejected", "input_required", "auth_required"]);
let stateNow = document.querySelector("[data-state]")?.dataset.state;

const EVENTS_MOST = 200; // shown as they come; those before are left out, and that is said
const shownEvents = [];

function showEvent({ what, state, at, words, progress }) {
  const line = document.getElementById("progress");
  if (line && state === "working") {
    line.textContent = [progress, words].filter(Boolean).join(" ") || line.textContent;
    line.hidden = !line.textContent;
  }
  if (what === "now") {
    if (state !== stateNow) location.reload();
    return;
  }
  if (PAUSES.has(state)) {
    location.reload();
    return;
  }
  stateNow = state ?? stateNow;
  const item = document.createElement("li");
  const quiet = document.createElement("span");
  quiet.className = "quiet";
  quiet.textContent = at ? ` ${at.slice(11, 23)}` : "";
  item.append([what === "result" ? "a part of the result" : state, [progress, words].filter(Boolean).join(" ")].filter(Boolean).join(": "), quiet);
  const moments = document.getElementById("moments");
  moments?.append(item);
  shownEvents.push(item);
  if (shownEvents.length > EVENTS_MOST) {
    const cut = (Number(shownEvents[0].dataset.cut) || 1) + 1;
    shownEvents.shift().remove();
    shownEvents[0].dataset.cut = cut;
    shownEvents[0].textContent = `${cut} events before are left out; the page has the timeline when it is loaded again`;
  }
}

async function follow() {
  const place = document.querySelector("[data-live=link]");
  for (let pause = 1; ; pause = Math.min(pause * 2, 30)) {
    try {
      const answer = await post("/news", watch ? { task: watch } : {});
      if (answer.ok) {
        place.textContent = "";
        for await (const { numbers, event } of events(answer.body)) {
          pause = 1;
          if (numbers) showNumbers(numbers);
          if (event) showEvent(event);
        }
      } else if (answer.status < 500) {
        place.textContent = "no more news for this page; load it again";
        return;
      }
    } catch {
      // The bridge is away, or stops: it is asked again below.
    }
    place.textContent = "no news from the bridge; asking again";
    await new Promise((go) => setTimeout(go, pause * 1000));
  }
}

if (watch !== undefined) follow();
