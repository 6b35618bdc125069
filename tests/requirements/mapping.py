"""The bridge's own design: what becomes what, what is kept, who is let in, and what the command does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.requirements.requirement import Requirement, Revision, Side, Source


def _of(side: Side, page: str, sentences: Mapping[str, str]) -> tuple[Requirement, ...]:
    """What a page of docs/ says of one side."""
    source = Source(Revision.DESIGN, page, f"docs/{page}.md")
    return tuple(
        Requirement(id=name, sources=(source,), sentence=sentence, sides=frozenset({side}))
        for name, sentence in sentences.items()
    )


MAPPING: Final = (
    # Tasks
    *_of(
        Side.AGENT,
        "operations",
        {
            "a2a-open-tasks": (
                "A principal has so many tasks that have not ended; another principal's are not counted"
            ),
            "a2a-full-history": (
                "A task whose history is full takes no more messages, is unchanged, and can be canceled"
            ),
        },
    ),
    # Questions
    *_of(
        Side.AGENT,
        "questions",
        {
            "a2a-held": (
                "A message to a task at work is kept, and answers a question that it names or just precedes"
            ),
            "a2a-in-context": (
                "A message with a context alone answers the one question there only when it can be nothing"
                " else"
            ),
            "map-extension-metadata": (
                "Metadata of an extension that the configuration names passes between A2A and `_meta` untouched"
            ),
            "map-refuse": "A question is refused only explicitly: by metadata, or by the exact shape",
            "map-confirm": (
                "A call that needs a yes is AUTH_REQUIRED until then: bound to tool and arguments, used once"
            ),
            "map-elicitation-form": (
                "A form that the server asks to fill in is INPUT_REQUIRED: words, schema and key"
            ),
            "map-elicitation-url": (
                "A URL that has to be visited is AUTH_REQUIRED; the stream stays open; -32042 likewise"
            ),
            "map-elicitation-both": "A form and a URL, or several forms, are one question with every key",
            "map-answers": (
                "An answer is checked against the form, and is text only where nothing has to be guessed"
            ),
            "map-rounds": (
                "InputRequiredResult: the same call again, with the answers and the server's requestState"
            ),
            "map-state-only": "Only requestState: the task stays WORKING, and the call is made again",
            "map-withdrawn": (
                "A question that the server takes back: the task is WORKING again, and the call goes on"
            ),
            "map-server-tasks": (
                "A task that the server makes of a call is followed to its result, in both eras"
            ),
            "map-server-tasks-cancel": "Cancelling the task cancels the server's",
            "map-input-timeout": "A task that nobody answers fails; the server is told, as far as it waits",
            "map-not-offered": "Sampling is not declared, and not answered; roots only where the file names folders",
            "map-asked-pause": "The time of a call stands still while a person is asked",
            "map-contended": (
                "A question that others wait behind is told to both sides, and withdrawn in time"
            ),
            "mcp-serial": (
                "A server that asks in the middle of calls runs one call at a time on a session from then on"
            ),
        },
    ),
    # Tools as agent
    *_of(
        Side.AGENT,
        "mapping",
        {
            "map-skill": "One skill per tool, with its name, description, tags, examples and modes",
            "map-extension-card": "The card's extension lists every tool as its server does",
            "map-route": "Which tool a message means: rules 1 to 5 and 7, never a guess",
            "map-files": (
                "A file fills the property that asks for one; one that fits nothing is"
                " ContentTypeNotSupported"
            ),
            "map-arguments": "Missing or wrong arguments are asked for by name, and the answer is merged",
            "map-arguments-extension": "With the extension active, arguments are passed through",
            "map-content": "Every kind of content block becomes a part, in order, for sends and for streams",
            "map-block": "With the extension active, the original block can be made again exactly",
            "map-is-error": "isError is FAILED, with all that the tool said",
            "map-mcp-error": "A JSON-RPC error is FAILED with its code; -32602 is REJECTED",
            "map-progress": (
                "Progress is WORKING with the message, the numbers in metadata; a flood keeps its last"
            ),
            "map-timeout": "A call that takes too long is cancelled on the server and FAILED",
            "map-cancel": "Cancelling a task cancels the call on the wire",
            "map-lost": "A server that dies fails its calls with a clear message, and the next call works",
            "map-overload": "When too many calls wait, one more is refused with 503 and Retry-After",
            "map-servers": (
                "The tools of several servers are one agent's skills, and each call goes to its own server"
            ),
            "map-overrides": (
                "What the configuration says of a skill or an argument is what clients see and servers get"
            ),
            "map-rules-hold": (
                "A rule or right holds for the same tools whichever peers are known, and gives nothing for"
                " want of one"
            ),
            "map-hidden": "A hidden tool is not callable, and a hidden argument is never the caller's",
            "map-reply": (
                "Where the configuration wants it, a quick call that completes is a Message; all else is a"
                " task"
            ),
            "card-base": "The card advertises public_url, or a forwarded prefix, never an alias",
            "card-changes": "The card follows the server's list of tools",
        },
    ),
    # Agents as tools: what is listed
    *_of(
        Side.SERVER,
        "agents-as-tools",
        {
            "map-tools": (
                "A tool for each skill, for each agent, or two that search; it says what the agent says of it"
            ),
            "map-tool-original": "A tool behind an agent of ours is the original one, without its execution",
            "map-cards-shown": "Cards are resources, and the examples of skills prompts",
            "map-tools-follow": (
                "The tools follow the agents and the configuration; hosts are told, and what began goes on"
            ),
            "map-agent-down": (
                "An agent that is down keeps no other from being served, and is looked for again"
            ),
        },
    ),
    *_of(
        Side.SERVER,
        "mapping",
        {
            "map-tool-names": (
                "Names of tools are taken by every host, unique, and the same whatever the order"
            ),
        },
    ),
    *_of(
        Side.SERVER,
        "configuration",
        {
            "map-tool-overrides": "What the configuration says of a tool is what hosts see and agents get",
        },
    ),
    # Agents as tools: a call
    *_of(
        Side.CLIENT,
        "mapping",
        {
            "map-call-message": (
                "Arguments become one message: text, data and files, the skill in its metadata"
            ),
        },
    ),
    *_of(
        Side.CLIENT,
        "life-of-a-call",
        {
            "map-call-followed": (
                "A task is followed to where it settles: a broken stream is taken up, nothing lost or doubled"
            ),
            "map-task-life": "A task is what its events make of it, by one table of its states",
            "map-call-once": "A message that may have been taken is never sent again by itself",
            "map-card-found": "A card is found below a URL or at it; else every place that was looked at is named",
            "map-agent-told": "What an agent does wrong, or not at all, is told in words, and in time",
            "map-heard": "Events that the specification does not foresee are made the best of, within bounds",
            "map-liberal": "What agents write in their own way is understood, and said",
            "map-agent-read-alone": (
                "Each thing of an agent's answer is read alone: what is known fills what is missing, and what is not"
                " understood is left out and said"
            ),
        },
    ),
    *_of(
        Side.CLIENT,
        "security",
        {
            "map-trust": (
                "A card leads no message to a private address, and no credentials to another origin, unless"
                " allowed"
            ),
        },
    ),
    *_of(
        Side.SERVER,
        "agents-as-tools",
        {
            "map-task-progress": "What an agent says on its way is progress, in numbers that grow",
            "map-result-schema": (
                "Structured content conforms to the output schema, or the result is an error that says what"
                " did not"
            ),
            "map-large-part": (
                "A part above the limit is a link to a resource that the bridge serves to its caller"
            ),
            "map-slow-agent": (
                "A call that takes long is answered with a handle, and can be come back to, answered and"
                " cancelled"
            ),
            "map-handles": (
                "A handle is good for whom it was given and for one purpose; forged, foreign and expired"
                " ones are answered alike"
            ),
            "map-who-cancels": (
                "A host that cancels a call cancels the agent's task, unless it was given a handle"
            ),
            "map-mcp-tasks": (
                "A long call of a client that declares the tasks extension is a task, whose end is that of"
                " the plain call"
            ),
        },
    ),
    *_of(
        Side.SERVER,
        "mapping",
        {
            "map-result": (
                "Artifacts become content in order, each kind of part as its table says; else the agent's"
                " last words"
            ),
            "map-result-failed": (
                "A task without success is an error in the agent's own words, then what it gave"
            ),
            "map-result-exact": "With the extension active, a result comes back block by block as it was",
            "map-peer-fault": (
                "What an agent does wrong is an error that says whose fault it is and what to do; -32602"
                " and -32603 are the only codes"
            ),
        },
    ),
    # Agents as tools: questions
    *_of(
        Side.SERVER,
        "agents-as-tools",
        {
            "map-ask-back": (
                "A question of an agent is an elicitation where the host takes one, else words with a handle"
            ),
            "map-ask-again": (
                "A question that gets misfitting answers is asked three times, and then in words or not at all"
            ),
            "map-ask-back-no": (
                "A no reaches an agent in a form that it has declared, else its task is canceled; it is asked once"
            ),
            "map-ask-back-url": (
                "Who has to sign in is sent to a URL that stands as such, and never shown a form"
            ),
        },
    ),
    *_of(
        Side.SERVER,
        "mapping",
        {
            "map-ask-back-schema": (
                "A question is asked by the schema that the agent gives, where that is a form, else in words"
            ),
        },
    ),
    *_of(
        Side.CLIENT,
        "mapping",
        {
            "map-ask-back-once": (
                "An answer is one message however often it is said, and answers no other question"
            ),
        },
    ),
    # Both directions in a row
    *_of(
        Side.BRIDGE,
        "agents-as-tools",
        {
            "map-round-trip": (
                "An MCP server wrapped and exposed again lists the same tools and answers each call the same"
            ),
            "map-agent-again": "An agent exposed and wrapped again gives, fails and asks as it does",
        },
    ),
    # Generations of A2A
    *_of(
        Side.BRIDGE,
        "versions",
        {
            "map-generations": "Whatever one generation of A2A says arrives in any other, and comes back as it was",
            "map-first-generation": "Agents and clients of the first generation are spoken to in its words",
            "map-named-tasks": (
                "In the first generation clients make the ids of tasks: one holds for its principal alone, over a"
                " restart, and for the next task once its task has ended"
            ),
            "map-hermes": (
                "Clients of Hermes are served where the configuration says so, and its agents called: tasks as"
                " resources, with artifacts, messages and a stream at paths of their own"
            ),
            "map-unsaid": "What a generation has no field for is noted in metadata, by one table for both ways",
            "map-merged-card": "One card serves the clients of every generation, or of 1.0 alone where that is said",
            "map-dialect": "An agent is spoken to as its card says, or the configuration, never as an error suggests",
            "map-version-asked": (
                "An agent whose card says no version is asked for it once, when the card is read, as far as it may be"
            ),
            "map-either-answer": "An agent may answer with a message or a task, and is asked later by either id",
        },
    ),
    # Our MCP server
    *_of(
        Side.SERVER,
        "architecture",
        {
            "mcp-served": (
                "The official client gets along with our server, in both eras and over both transports"
            ),
            "mcp-served-raw": "What a face gives goes out as it is, in what its era asks for around it",
        },
    ),
    *_of(
        Side.SERVER,
        "operations",
        {
            "mcp-served-end": "Stopping ends streams, lets calls go on, and is over in time",
        },
    ),
    # What goes on, and what is kept
    *_of(
        Side.BRIDGE,
        "operations",
        {
            "reload-agent": "An agent whose configuration changes goes on; calls that run end as they began",
            "replicas-one-holder": (
                "Of several replicas on one store, one at a time may add to a task; a dead one adds nothing more"
            ),
            "replicas-one-agent": "Several replicas on one store are one agent, whichever of them a client asks",
            "replicas-one-server": (
                "Replicas on one store answer for each other's MCP sessions of 2025-11-25, to the principal of the "
                "session alone"
            ),
            "replicas-sessions": (
                "Of several replicas, one has the session of a context or principal; one that was lost is told"
            ),
            "replicas-nothing-lost": (
                "When a replica dies or stands still, each acknowledged event is there once and in order, "
                "and the first end wins"
            ),
            "restart-fails-running": "After a restart, a task that was running is FAILED and says so",
            "restart-keeps-waiting": "After a restart, a task that waits for arguments goes on",
            "restart-goes-on": (
                "After a restart, a task that the server asked about, or works on, goes on where it can"
            ),
            "restart-says-why-not": (
                "After a restart, a call that is gone and may not be repeated is FAILED, and says so"
            ),
            "store-contract": (
                "(task, seq) is unique without gaps, the first end wins, owners and messages are unique"
            ),
            "store-kill": "No acknowledged event is lost when the process is killed",
            "store-owner": "One process owns a file",
            "store-retention": "Retention deletes only tasks that have ended",
            "store-visible": "An event is stored before anyone sees it",
        },
    ),
    # The wire's hygiene
    *_of(
        Side.BRIDGE,
        "security",
        {
            "sse-heartbeat": "A silent stream says at most every 3 s that it lives",
            "sse-escapes": "U+0085, U+2028 and U+2029 are escaped in streams",
            "sse-gone": "A client that goes away never affects the task",
            "sse-slow": "A slow reader is cut off, and the task goes on",
            "web-host": "A Host that is not ours, or an Origin of someone else, is refused",
            "web-json": "Only JSON is taken, bounded in size, depth, values and parts",
            "web-auth": "Beyond loopback: with a token, or explicitly without; 401 says which scheme",
            "web-never-opens": (
                "A reload never opens a bridge that asked for credentials; what is taken away holds at once"
            ),
            "web-skills": (
                "A skill or tool that a principal may not use is to it as if it were not there, on both faces"
            ),
        },
    ),
    # For those who run the bridge
    *_of(
        Side.AGENT,
        "operators",
        {
            "ops-role": (
                "An operator sees the tasks of all, and with `answer` cancels and answers them, by an extension alone; "
                "confirmations, logins and webhooks stay the owner's"
            ),
            "ops-contents": (
                "Without `operators_see_contents`, a mark replaces each content of a task of somebody else"
            ),
            "ops-named": "Who answered or canceled for somebody else is named in history, timeline, log and audit",
            "ops-timeline": (
                "A task has a timeline of what happened when, by whom and at which peer, and never of what was said"
            ),
        },
    ),
    # The catalog
    *_of(
        Side.BRIDGE,
        "catalog",
        {
            "catalog": "Published agents are listed with their cards: searched, by pages, with ETags",
            "catalog-found": "Only public agents are listed at the places where ARD and AI Catalog look",
            "catalog-source": "A catalog is followed within bounds; one that is down lists what it listed",
        },
    ),
    # Connections to tool servers
    *_of(
        Side.CLIENT,
        "operations",
        {
            "mcp-pages": "All pages of tools/list are read",
            "mcp-bad-tool": "One bad tool is left out with a warning that names it; the others stay",
            "mcp-unsound-schema": (
                "A tool whose schema is not valid JSON Schema is served, with a warning; the rest is checked"
            ),
            "mcp-eras": "Both eras are spoken, found out, remembered, or set",
            "mcp-changed": "list_changed is followed in both eras",
            "mcp-no-leak": "No child process outlives the bridge",
            "mcp-sessions": (
                "Sessions per principal or context are apart, made when needed, closed when idle, bounded"
            ),
            "mcp-fair": "Places and queue of a server are shared fairly by principal",
            "mcp-http-sse": (
                "A URL of the older HTTP+SSE is found out, remembered, and forgotten when it is none any more"
            ),
            "mcp-remembered": "What is known of tool servers is kept in one file that bridges share",
        },
    ),
    *_of(
        Side.CLIENT,
        "architecture",
        {
            "mcp-raw": "What a server says of a tool, in a result or in an error is handed on whole",
            "mcp-odd": "An answer is read however it is written, or its call fails at once; the rest is passed over",
            "mcp-child": "A child is spoken to however it writes, and ended with all that it started",
        },
    ),
    *_of(
        Side.CLIENT,
        "security",
        {
            "mcp-bounded": "What a server sends is bounded; above a bound its call fails, and no other",
        },
    ),
    *_of(
        Side.BRIDGE,
        "extensions",
        {
            "map-availability": (
                "A skill stays on the card while its server is down; the card says since when, by a word of a closed"
                " list, and all replicas say the same"
            ),
            "map-served-links": (
                "A link that only a tool server can open is a sealed, expiring address of the bridge for its caller"
                " alone, read under the rights of that moment, and a file that no browser shows"
            ),
            "map-preview": (
                "Where the configuration wants it, a long text of an agent is its beginning, with a link and pages of"
                " the rest for its principal alone; structured results and answers that no task keeps stay whole"
            ),
            "map-prompt-resource-skills": (
                "For clients that know nothing of MCP, a prompt is a skill that answers its messages, and a template"
                " and the plain resources are skills that read, under the rights of the caller"
            ),
            "map-logs": (
                "The log messages of a tool cross A2A to the client of the call that asked for them, as they were sent,"
                " and to nobody else; a flood of messages is bounded, and what is left out is said"
            ),
            "map-early-answers": (
                "Answers that a host sends with a call before it was asked reach a tool server of MCP 2026-07-28"
            ),
            "map-apps": (
                "MCP Apps cross A2A: pages and links as their server has them; tools for apps only, for hosts that show"
                " apps and clients of the extension, under the rights and confirmations of the caller"
            ),
            "map-mcp-requests": (
                "Requests of MCP, their results, errors and notifications cross A2A to the letter"
            ),
        },
    ),
    # The command and the configuration
    *_of(
        Side.BRIDGE,
        "configuration",
        {
            "cli-usage": (
                "Bad input is one clear message, exit code 2 (usage) or 1 (peer), no traceback, nothing"
                " left running"
            ),
            "cli-stop": "Ctrl+C drains, a second stops",
            "cli-call": "call streams a task's events, and asks at a terminal",
            "cli-tasks": "tasks lists the tasks of an agent, and shows, answers and cancels one",
            "cli-call-tool": "call also calls a tool of an MCP server, and asks what it asks in the same way",
            "cli-trace": "call --trace shows what is sent and what comes, and no header",
            "profile": "A profile is whole or refused, with every fault named",
            "config-faults": (
                "All that is wrong with a configuration is said at once: file, line, caret, what to do"
            ),
            "config-secrets": (
                "A secret is read by reference, refused in plain, and in no message, repr or listing"
            ),
            "config-sources": (
                "Every value says whether it is of a default, profile, file, variable or option, in that"
                " order"
            ),
        },
    ),
)
"""Every sentence, in the order of its matter."""
