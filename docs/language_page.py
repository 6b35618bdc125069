"""The page about plain language: what is written by hand, and what the agents make of the sentences of the tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.language.agents import ROUNDS, read, sentences, wanted

_HEAD: Final = """\
<!-- Written by docs/generate.py: change docs/language_page.py and tests/language, not this page. -->
# Plain language

Most clients of A2A send a sentence: a person at a prompt, or a framework that passes a person's words on. An agent
made of tools understands sentences, without a model. **A sentence never runs a tool that is not meant**: where the
meaning is in doubt, the agent asks.

```console
$ mcp-a2a call http://127.0.0.1:8080 "Please greet Ada"
Hello, Ada!
```

## Which sentences a skill understands

1. **Phrases of the file**, which you write. A call by such a phrase needs no yes, unless the tool says that it
   destroys something or a rule confirms it.
2. **Phrases of the mapping profile**, in `route.phrases`, and **of the [ready mapping](../mappings/README.md)** of a
   well-known server. They run tools that only read, and ask before any other.
3. **The skill's name and its one value**: the id, title or name, then the one required text or number, as in
   `search nodes Ada`. The agent runs a tool that only reads. Before any other it asks, with the call filled in; a
   yes is for that one call. `language = "strict"` leaves these sentences out.

A tool only reads if its server says so (`readOnlyHint`), or if you do: `skills.NAME.read_only = true`. A ready mapping
may say so, too, unless the server says that the tool writes.

```toml
[tool_servers.demo]
command = ["python", "examples/demo_server.py"]

[tools_as_agent.demo]
from = ["demo"]
skills.trip.phrases = ["how long do {kilometres} (km|kilometres) take [at {speed} (km/h|kph)]"]
skills.book = { phrases = ["book [a seat|seats] to {destination}"] }
```

"help", "What can you do?" and a greeting are answered with what the agent does and three example sentences. The
card's examples begin with sentences that the agent understands.

## How a phrase is written

| part | fits |
|---|---|
| `word` | this word, in any case |
| `[words]` | these words, or nothing |
| `(one\\|other)` | one of them; `[one\\|other]` may be absent, too |
| `{name}` | the value of the argument `name` |
| `{name:word}` | one word, or a text in quotation marks; in a list, each text |
| `{name:path}` | one word with a slash, a dot or a tilde that is no URL, or a text in quotation marks |
| `{name:file}` | a path whose last part has an ending as in `a.txt`, or a text in quotation marks |
| `{name:folder}` | a path whose last part has no ending as in `/data`, or a text in quotation marks |
| `{name:time}` | a time of day as in `14:30`, or a text in quotation marks |
| `{name=value}` | no words: the argument has this value |

A number may be written in digits or, up to a hundred, in words. A choice of an `enum` may be in any case. A date
(`format: date`) is `2026-01-31`, `31 January 2026` or `January 31, 2026`. A list of texts is `a, b and c`. Any
other value is text of one line, which keeps its case and punctuation. Words around the phrase such as "please" and
a mark at its end do not count, "what's" is "what is", and quotation marks keep everything: `say hello to "Ada!"`.

## When the agent asks

- Two skills fit, or one text fits a phrase in two ways.
- A value without quotation marks holds a negation, a condition or a second request: "greet Ada if it rains", "greet
  Ada, then book a seat". Quotation marks make it a value: `greet "Ada, then Bob"`. The agent knows such words of
  thirteen languages.
- A value stands for something else, or only describes it: "forget it", "delete the entities that are old".
- A value without quotation marks is no likely name: "greet Ada in French", "book a seat to Lisbon 12 May", "greet my
  friend", "greet Ada #urgent". This does not count for arguments that take any text, such as `message` or `query`.
- Words after the skill's name fit none of its arguments: "swatch FF8800", because `swatch` requires no argument.
- A required argument is missing. The agent asks for it in words, and keeps what it understood.
- The text has several lines, over 1,000 characters or over 100 words. Lines that begin with `For context:` or
  `Context:` may stand before the sentence: they count as other text parts.
- Several text parts mean different calls, or another part says no. A sentence is one whole text part.

If the agent has a default skill, or only one, and that skill takes text, then only phrases of the file come before
it. A call that names its skill is no sentence: nothing of this page applies to it.

`mcp-a2a call --explain http://127.0.0.1:8080 "Divide ten by 4, please"` shows which rule matched, and with which
values. Nothing is run:

```
rule: a phrase of the configuration: divide {dividend} by {divisor}
skill: divide
dividend = 10
divisor = 4
then: the skill runs
```

`mcp-a2a check` reports phrases of the file and of the mapping profile that also fit another skill, that have an
argument which the tool lacks, or that name no argument although the tool needs one. It also reports `examples` of the
file that the agent does not understand, and lists the tools of which nothing says whether they only read.

## A model for what is left

Without a model, the agent asks what a text means that no rule understands. With `language = "model"`, it asks a
language model first. Nothing is sent to a model unless you write both tables:

```toml
[model]
url = "http://127.0.0.1:11434/v1"
model = "qwen3:8b"

[tool_servers.weather]
url = "https://weather.example.com/mcp"

[tools_as_agent.weather]
from = ["weather"]
language = "model"
```

`url` is the base of an API like OpenAI's chat completions (OpenAI, Azure, vLLM, Ollama, llama.cpp, LiteLLM) or of
Anthropic's Messages. `api_key` comes from the environment or a file. **The texts of callers and the descriptions of
tools go to this host**; the card and `mcp-a2a check` say so. Calls that name their skill, and sentences that a phrase
understands, never go there.

- The model gets tools that the caller may use, never hidden ones, and chooses one of them. The bridge checks its call
  against the schema. The model may correct a call once.
- **A tool that is not read-only waits for a yes** to this one call. A tool that only reads runs at once, although the
  model may have misunderstood the text. If a wrong reading call is harmful, leave `language` at `phrases`.
- The client is asked as without a model, after the words of the model, in these cases: the model chooses no tool, or
  several; its call does not fit; it is late or fails; no tokens are left.
- The result is the tool's own. Its metadata has the model, its tokens and the time, under
  `urn:mcp-a2a:tool:v1/model`. Metrics, spans and the audit have them, too.
- Each principal has `hourly_tokens`. All callers without credentials share `hourly_tokens_shared`. Each process counts
  for itself, and begins anew with a restart.
- Descriptions and results of tools are marked as data. A model may obey them all the same. Even then it can choose only
  tools that were offered, and each call is checked.

### Several calls for one text

With `rounds` above 1 in `[model]`, the model gets the result of its call, may call further tools, one after the other,
and then answers in its own words. **Then the results of its calls go to its host, too.**

- `rounds` is the most calls for one text. `seconds` and the tokens of the hour count over all of them.
- Each call is a step of the task: a status says which skill was chosen, and the result is an artifact, as the tool gave
  it. The words of the model are the last artifact, `answer`; the metadata of its part names the model. The last message
  lists all calls, and says which of them failed.
- In each round, the same rules hold: the rights of the caller at this moment, the schema, and a yes for each call that
  is not read-only. A no ends the task. The model never gets a tool that is new, or whose description has changed, since
  its first question for this text.
- The task completes only if a call has answered and the model then says something that is not a question. Otherwise
  the client is asked what to do next, and gets the list of calls.
- A question of a tool goes to the client, and the model goes on after the answer. If the bridge restarts while the
  model is asked, the client is asked. If it restarts during a call, the task fails, as any call does.

Small models choose badly. Gemma 3 with 270 million parameters, under llama.cpp with a grammar and six examples, was
given ten sentences for five tools. The examples were written for these sentences, so fresh ones would go worse. Seven
times it did what the sentence says. Once it ran a wrong tool that only reads. Twice it asked for a yes to a wrong call.
With three rounds it called tools that nobody had asked for, and then said that no tool fits.

The bridge offers no sampling to tool servers, with or without a model: MCP has deprecated it (SEP-2577).

## What agents make of 340 sentences

The sentences stand in `tests/language/sentences.toml`. The first hundred were written from the tool lists alone,
before the rules. Sixty were written later, from the tool lists alone again: before the rules learned from
them, 30 were right, 29 asked, and 1 was wrong. The last eighty are from 333 sentences that were written to attack the
rules. At first, 67 of the 333 ran with a value that was not meant, such as the name "Ada in French"; none of them does
now. *Right* means that the agent did what the sentence says (ran the tool,
asked for a yes, or asked); *asked* means that it asked although the sentence is clear; *wrong* means that it ran
another call, or asked for a yes to another call.

"""


def language() -> str:
    """The page."""
    return _HEAD + "".join((*_figures(), *_table()))


def _figures() -> Iterator[str]:
    yield "| sentences | right | asked | wrong |\n|---|---|---|---|\n"
    for name, some in {**ROUNDS, "all": slice(None)}.items():
        counted = Counter(read(sentence)[1] for sentence in sentences()[some])
        yield f"| {name} | {counted['right']} | {counted['asked']} | {counted['wrong']} |\n"


def _table() -> Iterator[str]:
    yield "\n| agent | sentence | leads to | verdict |\n|---|---|---|---|\n"
    for sentence in sentences():
        yield _row(sentence)


def _row(sentence: Mapping[str, Any]) -> str:
    found, verdict = read(sentence)
    said = verdict if verdict == "right" else f"**{verdict}**, not {_cell(str(wanted(sentence)))}"
    return f"| {sentence['server']} | {_cell(sentence['text'])} | {_cell(str(found))} | {said} |\n"


def _cell(text: str) -> str:
    """A text as code, with the bars of the table kept."""
    return "`" + text.replace("|", "\\|").replace("\n", " ↵ ") + "`" if text else "(nothing)"
