"""The page about what becomes what: printed from the tables of `bridge/translate` and its neighbours.

Rows are the tables' own keys, and what stands in them is what the translation does with a sample, so that the page
cannot say anything else. Here are only the samples and the words around them.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, Final

import mcp_types

from bridge.a2a.model import errors, life
from bridge.a2a.model.objects import Part, TaskState
from bridge.a2a.tasks import idempotency
from bridge.agents_as_tools import mcp_tasks
from bridge.agents_as_tools.mcp_requests import shared_servers
from bridge.agents_as_tools.resources import SCHEME
from bridge.mcp import apps as mcp_apps
from bridge.mcp.client.as_tools import prompts, resources, uri_templates
from bridge.text.jsonvalues import JsonObject
from bridge.tools_as_agent import bridge_notes
from bridge.translate import (
    agent_questions,
    blocks,
    content,
    examples,
    message_to_call,
    outcome,
    prompt_messages,
    refusals,
    result,
    skills,
    tool_names,
)
from bridge.translate.extensions import apps
from bridge.translate.extensions import bridge as extension

HEAD: Final = """\
<!-- Written by docs/generate.py from the tables of bridge/translate: change those, not this page. -->
# What becomes what

The tables of the translation, as the code has them: `bridge/translate` is pure, and reads each of them in one direction
or both.

"""

BLOCK_SAMPLES: Final[Mapping[str, JsonObject]] = {
    "text": {"type": "text", "text": "Hello", "annotations": {"priority": 1}},
    "image": {"type": "image", "data": "iVBORw0=", "mimeType": "image/png"},
    "audio": {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"},
    "resource": {
        "type": "resource",
        "resource": {"uri": "notes://1/todo.md", "mimeType": "text/markdown", "text": "Milk"},
    },
    "resource_link": {"type": "resource_link", "uri": "https://example.com/a.pdf", "name": "a.pdf"},
}
"""One block of each type that the table knows."""

PROMPT_SAMPLE: Final[JsonObject] = {
    "messages": [{"role": "user", "content": {"type": "text", "text": "Hello"}}],
}

OTHER_BLOCK: Final[JsonObject] = {"type": "hologram", "shape": "cube"}
LOCAL_LINK: Final[JsonObject] = {"type": "resource_link", "uri": "file:///etc/hosts", "name": "hosts"}

PART_SAMPLES: Final[Mapping[str, JsonObject]] = {
    "text": {"text": "Hello"},
    "raw": {"raw": "iVBORw0=", "mediaType": "image/png", "filename": "a.png"},
    "url": {"url": "https://example.com/a.pdf", "mediaType": "application/pdf"},
    "data": {"data": {"total": 3}},
}
"""One part of each kind that the table knows."""

ASIDES: Final[Mapping[str, str]] = {
    extension.UNATTRIBUTED: bridge_notes.MISSED.format(3),
    extension.UNUSED: bridge_notes._UNUSED.format(2),
    extension.BESIDE: bridge_notes._BESIDE.format(bridge_notes._waiting(["01a2"])),
    extension.LOST_SESSION: bridge_notes.SESSION_IS_LOST,
}
"""A sample of the words under each key."""

A2A_ERRORS: Final = {name: one for name, one in vars(errors).items() if isinstance(one, errors.ErrorKind)}


def mapping() -> str:
    """The page."""
    return HEAD + "".join(
        (
            *_content(),
            *_other_skills(),
            *_apps(),
            *_states(),
            *_failures(),
            *_messages(),
            *_questions(),
            *_names(),
            *_keys(),
        )
    )


# The sections


def _content() -> Iterator[str]:
    yield "## Content\n\n### A block of a tool's result, as a part of an artifact\n\n"
    yield "`TYPE` in metadata is `urn:mcp-a2a:tool:v1/block`: what A2A has no words for. "
    yield "It is shown to clients that activated the\n"
    yield "extension, and makes the way back exact.\n\n"
    known, shown = set(content._CONVERTERS), set(BLOCK_SAMPLES)
    assert known == shown, f"the samples and the table differ: {known ^ shown}"
    yield from _table(
        ("block", "in MCP", "in A2A"), (_block_row(name, BLOCK_SAMPLES[name]) for name in content._CONVERTERS)
    )
    yield "\nA block of another type, or that lacks what its type needs, is handed on whole:\n\n"
    yield from _table(("block", "in MCP", "in A2A"), [_block_row("any other", OTHER_BLOCK)])
    yield "\nA link that only the server can open is read for clients without the "
    yield "extension, within a limit. One to a file is not passed on\n"
    yield 'unless the profile allows it. With `links = "serve"` of the agent, the other links are addresses '
    yield "of the bridge instead:\n\n"
    yield from _table(("block", "in MCP", "in A2A"), [_block_row("link to a file", LOCAL_LINK)])
    yield from _structured()
    yield "### A part of an agent's artifact, as a block of a result\n\n"
    known, shown = set(blocks._PLAIN), set(PART_SAMPLES)
    assert known == shown, f"the samples and the table differ: {known ^ shown}"
    yield from _table(
        ("part", "in A2A", "in MCP"), (_part_row(kind, PART_SAMPLES[kind]) for kind in blocks._PLAIN)
    )
    yield "\nA part that was a block (it says so under the extension's key) is that block "
    yield "again. One larger than the profile's\n"
    yield "`part_inline_limit_bytes` is a link that the bridge serves. With `preview_bytes`, a longer text is its "
    yield "beginning, a sentence, and that link\n([long texts](agents-as-tools.md#long-texts)).\n\n"


def _structured() -> Iterator[str]:
    yield "\nStructured content is a data part, the last one; a text that repeats it is "
    yield f"marked. Data deeper than {content.MAX_DATA_DEPTH} levels is "
    yield "passed on as JSON text.\n\nA client without the extension gets what a text and the data say alike in the "
    yield "form that its `acceptedOutputModes` name. A text\nsays the same when it is the JSON of the data, or "
    yield f'the one thing in `{{"{content.WRAPPED}": ...}}`. `text/*` and `application/*` name a form; `*/*` names '
    yield "neither.\n\n"
    yield from _table(
        ("text named", "JSON named", "it gets"),
        (
            ("yes" if text else "no", "yes" if data else "no", form)
            for (text, data), form in outcome.REPEATED.items()
        ),
    )
    yield "\nA text that says anything else always stays, beside the data, and so does the text of a failure. A task "
    yield "is stored in the form in which\nits caller got it: GetTask and ListTasks show every client that one.\n\n"


def _other_skills() -> Iterator[str]:
    yield "## Prompts and resources as skills\n\nWith `prompts` and `resources` of an agent, "
    yield "a listed entry is a skill, "
    yield "and its answer is the result of a tool, whose content becomes\nparts as above:\n\n"
    answer = prompts.result_of_messages(PROMPT_SAMPLE)
    (part,) = prompt_messages.parts_of_messages(answer, content.LinkRules(extension_active=False))
    shown = part.changed(metadata={extension.MESSAGE: (part.metadata or {})[extension.MESSAGE]}).model_dump(
        mode="json", by_alias=True, exclude_none=True
    )
    template = uri_templates.template_from("notes://{year}/{name}{?lang}")
    needed = ", ".join(
        name if is_needed else f"{name} (optional)" for name, is_needed in template.variables.items()
    )
    yield from _table(
        ("in MCP", "the skill", "takes", "asks", "answers"),
        [
            (
                "prompt `greet`",
                f"`{prompts.PREFIX}greet`",
                "its arguments, as texts",
                "`prompts/get`",
                f"for each block of a message: {_json(shown)}",
            ),
            (
                "template `note`: `notes://{year}/{name}{?lang}`",
                f"`{resources.TEMPLATE_PREFIX}note`",
                needed,
                f"`resources/read` of `{template.expanded({'year': '1', 'name': 'a b'})}`",
                "the contents",
            ),
            (
                "all resources",
                f"`{resources.SEARCH}`",
                "`query` or `uri`",
                "`resources/list`, then `resources/read` of the one that is meant",
                "the contents, or links",
            ),
        ],
    )
    yield "\n"


def _apps() -> Iterator[str]:
    yield "## MCP Apps\n\nWith `apps` in `share` of an agent ([extensions](extensions.md#mcp-apps)):\n\n"
    links: JsonObject = {"_meta": {"ui": {"resourceUri": "ui://clock/page"}}}
    server = shared_servers.SharedServer("time", "", {}, f"{SCHEME}time/r/")
    tools: list[tuple[str, JsonObject]] = [
        ("a tool for models and apps", {"_meta": {"ui": {}}}),
        ("a tool for models only", {"_meta": {"ui": {"visibility": ["model"]}}}),
        ("a tool for apps only", {"_meta": {"ui": {"visibility": ["app"]}}}),
    ]
    yield from _table(
        ("in MCP", "over A2A", "for hosts of several agents"),
        [
            *(
                (
                    f"{words}: {_json(tool)}",
                    "a skill" if mcp_apps.is_for_model(tool) else f"no skill, but a tool of `{apps.URI}`",
                    "a tool"
                    if mcp_apps.is_for_model(tool)
                    else f"a tool, if the host declares `{mcp_apps.EXTENSION}`",
                )
                for words, tool in tools
            ),
            (
                f"a link to a page: {_json(links)}",
                "the same, in the declared tool",
                _json(apps.with_app_link(links, server.shown_uri)),
            ),
            ("the page", "a resource", f"the resource `{server.shown_uri('ui://clock/page')}`"),
        ],
    )
    yield "\n"


def _states() -> Iterator[str]:
    yield "## Task states\n\nThe table shows what an MCP host sees for each state of the agent's task, in a "
    yield "plain call and in an MCP task, and which states may follow.\n\n"
    yield from _table(
        ("state", "the call", "the MCP task", "may be followed by"),
        (
            (_short(state), _call_in(state), f"`{mcp_tasks._STATUS.get(state, 'working')}`", _after(state))
            for state in TaskState
            if state in life.NEXT
        ),
    )
    yield "\nWhat a task of a published agent ended with stands in its status, and as the newest message in its"
    yield "\nhistory, once: some clients read nothing else. What it asks joins the history when the task goes on.\n\n"


def _failures() -> Iterator[str]:
    yield "## Failures\n\n### Of a tool server, as the state of a task\n\n"
    rows = [("a result with `isError`", "FAILED", "the tool's content, all of it")]
    rows += [
        (f"error {code}{_error_name(code)}", _short(state), "its message; code and data in metadata")
        for code, state in outcome.STATE_OF_ERROR.items()
    ]
    rows += [
        (f"error {outcome.URL_REQUIRED}", "AUTH_REQUIRED", "the URLs to visit"),
        ("any other error", _short(outcome.state_of_error(0)), "its message; code and data in metadata"),
    ]
    yield from _table(("in MCP", "state", "status message"), rows)
    yield "\n### Of the agent that is published, as each binding says it\n\n"
    yield from _table(
        ("reason", "domain", "JSON-RPC", "HTTP", "status"),
        (
            (
                f"`{one.reason}`",
                f"`{one.domain}`",
                str(one.jsonrpc_code),
                f"{one.http_status}{', over JSON-RPC too' if one.at_http_level else ''}",
                f"`{one.rpc_status}`",
            )
            for one in A2A_ERRORS.values()
        ),
    )
    yield "\n### Of a remote agent, as a result of a tool\n\n"
    yield from _table(
        ("state", "result"),
        (
            (
                _short(state),
                f"`isError`: {_quoted(words)} when the agent says nothing itself, else its own words;"
                " then what it gave until then",
            )
            for state, words in result._ENDS.items()
        ),
    )
    yield "\nAn error of the A2A protocol, an agent that is not there, and a card that is "
    yield "none are `isError` too, and say whose fault it is.\n\n"


def _messages() -> Iterator[str]:
    yield "## Which tool a message means\n\nThe first rule that matches decides; nothing is guessed.\n\n"
    _, rules, *beside = (inspect.getdoc(message_to_call) or "").split("\n\n")
    yield "\n".join(f"- {line}" for line in rules.splitlines())
    yield "".join(f"\n\n{paragraph}" for paragraph in beside)
    yield "\n\n[Plain language](language.md) says which sentences mean a skill.\n\n## Skills\n\n"
    yield "The examples of a skill are sentences that the agent understands, then arguments that fit its schema: as "
    yield "JSON, and as text where each "
    yield "is a plain value. Formats give:\n\n"
    yield from _table(
        ("format", "value"), ((f"`{name}`", f"`{value}`") for name, value in examples._FORMATS.items())
    )
    yield "\nAn annotation becomes a tag when the server says it itself:\n\n"
    yield from _table(
        ("annotation", "true", "false"),
        (
            (f"`{name}`", f"`{true}`", f"`{false}`" if false else "")
            for name, (true, false) in skills._HINTS.items()
        ),
    )
    yield "\n"


_ANSWERS: Final = (
    (
        "`accept`",
        "the form's data, unchanged",
        "the form's data, or the text; for a URL nothing is sent, as the agent notices the visit by itself",
    ),
    (
        "`decline`",
        '`{"action": "decline"}` as data, and in metadata',
        "the no of its form, where the form's schema declares one; else CancelTask, and the host is told that the "
        "person declined",
    ),
    (
        "`cancel`",
        '`{"action": "cancel"}` as data, and in metadata: the server behind it decides, as it does directly',
        "CancelTask, and the host is told so",
    ),
)


def _forms_of_a_no() -> Iterator[str]:
    """Which forms can say no, by the tables of the code."""

    def listed(words: frozenset[str]) -> str:
        return ", ".join(f"`{word}`" for word in sorted(words))

    yield "\nA schema declares a no when exactly one of its fields is about consent alone, and no other field is "
    yield f"required. That is a boolean, or a choice of `yes` and `no`, named {listed(refusals._CONSENTS)}; or a "
    yield f"choice between some of these words and exactly one of {listed(refusals._REFUSALS)}, in a field with one "
    yield f"of these names or named {listed(refusals._DECISIONS)}. `is`, `i` and `user` in a name do not count. "
    yield "Nothing else is taken for a no: false may be an answer like any other, or even the yes.\n\n"
    yield "`task_reply` with `action` is such an answer, `tasks/update` is, and Ctrl+D and `--decline` of "
    yield "`mcp-a2a call` are. When the agent does not cancel its task, the result is an error that says so.\n"


def _questions() -> Iterator[str]:
    yield "## Questions\n\nA question of a remote agent is a form of its own when its "
    yield "schema is one that MCP has words for, else one field of text:\n\n"
    yield from _table(
        ("type of a field", "keywords"),
        (
            (f"`{kind}`", ", ".join(f"`{word}`" for word in sorted(words)))
            for kind, words in agent_questions._KEYWORDS.items()
        ),
    )
    yield f"\nFormats: {', '.join(f'`{one}`' for one in sorted(agent_questions._FORMATS))}. What a "
    yield "host answers reaches the agent so. No words of the bridge stand where an answer should:\n\n"
    yield from _table(("the host's answer", "with the bridge's extension", "any other agent"), _ANSWERS)
    yield from _forms_of_a_no()
    yield "\nThe other way round, and what a client answers: [When a server asks](questions.md).\n\n"
    yield "### What a task says beside its tool\n\nSome words in a task's status message are the bridge's own. "
    yield "They are a part of the message, and stand\nin its metadata under a key, so that they can be told from "
    yield "the tool's; an artifact never holds them. Each key starts with\n"
    yield f"`{extension.URI}/`.\n\n"
    known, shown = set(extension.REMARKS), set(ASIDES)
    assert known == shown, f"the samples and the table differ: {known ^ shown}"
    yield from _table(
        ("key", "words"),
        ((f"`{key.removeprefix(f'{extension.URI}/')}`", _quoted(ASIDES[key])) for key in extension.REMARKS),
    )
    yield "\n"


def _names() -> Iterator[str]:
    yield "## Names of tools\n\n"
    yield f"- The name that a tool has on its own server, when hosts take it: `{tool_names._EXACT.pattern}`.\n"
    yield "- Else the skill's id in small letters, digits and `_`, at most "
    yield f"{tool_names.MAX_NAME_CHARACTERS} characters; the skill's name where its id holds a UUID.\n"
    yield "- Where several want the same, all of them get their source's name before it, "
    yield "and a part of a hash where that is not enough.\n"
    yield f"- Reserved for the bridge: {', '.join(f'`{name}`' for name in sorted(tool_names.RESERVED))}.\n\n"
    yield from _rules()


def _rules() -> Iterator[str]:
    own = "delete"
    qualified = skills.qualified_id(("notes", own))
    yield "## Rules and rights\n\n"
    yield "The shown name of a tool depends on the other tools that are known. Rules and rights of a file do not. "
    yield f"The tool `{own}` of the server `notes` has its own name `{own}` (at an agent, also the id of its "
    yield f"skill) and its qualified name `{qualified}`. Its shown name is one of them, or the `id` or `name` "
    yield "that a rule gives it.\n\n"
    yield from _table(("", "by an exact name", "by a glob"), _WHICH_NAMES)
    yield "\nA peer is known once this bridge, or an earlier run of it, has read its tools or its card. While a peer "
    yield "of the agent or MCP server was never reached, or a catalog was never read, a right by a shown "
    yield "name holds only if it holds for every name that the tool may come to have: "
    yield f"`*{own}` does, `{own}` waits, `{qualified}` holds at once. The log says what waits.\n\n"
    yield "- A qualified name that two tools may have (`a_b` and `c`, `a` and `b_c`) takes from both and gives to "
    yield "neither.\n"
    yield "- Rules of an MCP server over an agent of the bridge hide by the names of that agent's servers, too.\n\n"


_WHICH_NAMES: Final = (
    (
        "a rule that takes away: `hidden`, `confirm`, `public = false`",
        "its own or its qualified name",
        "its own or its qualified name",
    ),
    (
        "a rule that gives back: `hidden = false`, `confirm = false`, `public = true`",
        "its own or its qualified name",
        "its own name, or the name that is shown",
    ),
    ("all else in a rule", "its own or its qualified name", "its own or its qualified name"),
    (
        "a right: `skills` of a principal, `scopes` of an issuer",
        "the name that is shown, or its qualified name",
        "the name that is shown",
    ),
)
"""By which names rules and rights hold."""


def _keys() -> Iterator[str]:
    yield f"## Keys\n\nOf A2A metadata; the extension is `{extension.URI}`:\n\n"
    yield from _table(("key", "meaning"), [*_constants(extension, "urn:"), *_constants(idempotency, "urn:")])
    yield "\nOf `_meta` of MCP:\n\n"
    yield from _table(("key", "meaning"), [*_constants(result, "mcp-a2a/"), *_constants(content, "mcp-a2a/")])


# How they are written


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    titles = list(head)
    yield f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}\n"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n"


def _block_row(name: str, block: JsonObject) -> tuple[str, str, str]:
    links = content.LinkRules(extension_active=True)
    (part,) = content.parts_from_result({"content": [block]}, links)
    return (
        name,
        _json(block),
        _json(_with_short_key(part.model_dump(mode="json", by_alias=True, exclude_none=True))),
    )


def _part_row(kind: str, part: JsonObject) -> tuple[str, str, str]:
    (block,) = blocks.blocks_from_parts([Part.model_validate(part)], blocks.ResultRules())
    return kind, _json(part), _json(block)


def _with_short_key(part: JsonObject) -> JsonObject:
    """A part whose metadata has TYPE for the key that stands in each row."""
    metadata = part.get("metadata")
    if not isinstance(metadata, dict):
        return part
    short = {"TYPE" if key == extension.BLOCK else key: value for key, value in metadata.items()}
    return {**part, "metadata": short}


def _call_in(state: TaskState) -> str:
    if state in life.INTERRUPTED:
        return f"{_quoted(agent_questions._NO_WORDS[state])}, or what it says: an elicitation, or text"
    if state in result._ENDS:
        return "a result with `isError`"
    return "the result" if state in life.ENDED else "goes on; what it says is progress"


def _after(state: TaskState) -> str:
    following = life.NEXT[state]
    return ", ".join(_short(one) for one in TaskState if one in following) or "nothing"


def _short(state: TaskState) -> str:
    return state.value.removeprefix("TASK_STATE_")


def _error_name(code: int) -> str:
    named = [name for name in ("INVALID_PARAMS",) if getattr(mcp_types, name) == code]
    return f" (`{named[0]}`)" if named else ""


def _constants(module: ModuleType, beginning: str) -> Iterator[tuple[str, str]]:
    """The keys that a module fixes, with what is said below each."""
    body = ast.parse(inspect.getsource(module)).body
    for statement, below in itertools.pairwise(body):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and _is_words(below)
        ):
            value: Any = getattr(module, statement.target.id)
            if isinstance(value, str) and value.startswith(beginning):
                yield f"`{value}`", " ".join(ast.literal_eval(below.value).split())  # type: ignore[attr-defined]


def _is_words(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _json(value: object) -> str:
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def _quoted(words: str) -> str:
    return f'"{words}"'
