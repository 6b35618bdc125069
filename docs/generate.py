"""Writes the pages that are generated: `python docs/generate.py`. A test fails when one of them is stale.

What a key means stands with the key, in `bridge/config` and in the comments of `mappings/default.toml`; here is only
how that becomes a page, and the examples. The list of decisions is made of their titles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from bridge.config.check.schema_nodes import SchemaNode, node_at, takes_of, unit_of
from bridge.config.file_schema import config_schema, meanings_in, profile_schema
from bridge.config.tables.models import (
    AgentTable,
    Config,
    SkillTable,
    ToolsAsAgentTable,
    ToolServerTable,
    ToolTable,
)
from bridge.config.tables.profile import TABLES_OF, profile_place
from bridge.config.text.document import read_toml
from bridge.config.toml_text import toml_value
from docs.language_page import language
from docs.mapping_page import mapping

DOCS: Final = Path(__file__).parent

HEAD: Final = """\
<!-- Written by docs/generate.py from bridge/config and mappings/default.toml: change those, not this page. -->
# Configuration

One TOML file says what the bridge connects to (`tool_servers`, `agents`, `catalogs`), what it serves
(`tools_as_agent`, `agents_as_tools`, `agents_as_agent`), who may call (`principals`, `groups`, `issuers`), and how the
process runs (`bridge`).

- **Precedence**: command line over environment (`MCP_A2A_*`) over file over profile over default.
- **Secrets** never stand in the file. Write `{ env = "NAME" }` or `{ file = "PATH" }`. The bridge refuses a literal in
  the place of a secret (`bearer`, `api_key`, `Authorization`, `Cookie` and other headers named after a key or token).
- **Relative paths** begin at the folder of the file, and `~` is your home folder.
- **Names** of tables have at most 40 characters: small letters, digits, `-` and `_`.
- **Paths** never move: an agent is at `/agents/NAME`, an MCP server at `/mcp/NAME`.
- **Mistakes** are reported all at once, each with its line and what to do. The bridge then starts nothing, and exits
  with 2.
- **Editors** that know JSON Schema complete and check a file whose first line is `#:schema ./mcp-a2a.schema.json`.
  `mcp-a2a schema` prints the schema.

"""

DECISIONS_HEAD: Final = """\
<!-- Written by docs/generate.py from the titles of the pages: change those, not this page. -->
# Decisions

A page for each decision that had alternatives: what was considered, what was decided, and why. The number says in
which order the numbers were taken, and never changes. A later page may supersede an earlier one, and says so.

**The numbers 18 and 19 were never used.** No commit of this repository has a page with one of them, or a link to
one. Page 20 was committed before page 17; why the numbers between were passed over is not recorded. They stay free,
so that nobody looks for a page that was withdrawn.

**The number 48 was used twice**, by two changes made side by side. Links name the file, so both pages stay as they
are. A test refuses another gap, and another number that is used twice.

"""

SECTIONS: Final[dict[str, str]] = {
    "bridge": """\
[bridge]
port = 8080
public_url = "https://bridge.example.com"
store = "bridge.db"
keys = [{ file = "handle.key" }]
""",
    "tool_servers": """\
[tool_servers.github]
command = ["npx", "-y", "@modelcontextprotocol/server-github"]
env = { GITHUB_TOKEN = { env = "GITHUB_TOKEN" } }

[tool_servers.weather]
url = "https://weather.example.com/mcp"
auth = { bearer = { env = "WEATHER_TOKEN" } }
call_timeout_seconds = 20
""",
    "import": """\
[import]
mcp_json = "mcp.json"
known_agents = "hermes_config.yaml"
""",
    "agents": """\
[agents.research]
card = "https://research.example.com"
auth = { bearer = { file = "research.token" } }
""",
    "catalogs": """\
[catalogs.partners]
url = "https://bridge.partner.example/agents"
exclude = ["test-*"]
""",
    "tools_as_agent": """\
[tools_as_agent.devtools]
from = ["github", "weather"]
mapping = "strict"
skills.create_issue = { name = "Open an issue", text_into = "title", arguments.labels = { default = ["new"] } }
skills.search_issues = { phrases = ["(find|search) issues (about|for) {query}"], read_only = true }
skills."delete_*" = { hidden = true }
""",
    "push": """\
[push]
enabled = true
allow = ["receiver.internal:8443"]
secrets."receiver.internal:8443" = { env = "RECEIVER_SECRET" }
""",
    "model": """\
[model]
url = "https://api.openai.com/v1"
model = "gpt-5-mini"
api_key = { env = "OPENAI_API_KEY" }
""",
    "audit": """\
[audit]
file = "audit.jsonl"
required = true
""",
    "agents_as_tools": """\
[agents_as_tools.team]
from = ["research", "partners", "devtools"]
title = "The team"
tools."*" = { task_after_seconds = 5 }
""",
    "agents_as_agent": """\
[agents_as_agent.front]
from = ["research"]
name = "Research desk"
skills."draft_*" = { hidden = true }
""",
    "principals": """\
[principals.alice]
bearer = { env = "ALICE_TOKEN" }
skills = ["devtools/create_*", "team/*"]

[principals.bob]
group = "readers"
tokens = [{ env = "BOB_TOKEN" }, { env = "BOB_NEXT_TOKEN" }]
""",
    "groups": """\
[groups.readers]
skills = ["devtools/get_*"]
open_tasks = 20
""",
    "issuers": """\
[issuers.corp]
issuer = "https://login.example.com"
audience.devtools = ["api://devtools"]
scopes."tools:read" = ["get_*", "team/*"]
scopes."tools:write" = ["create_*"]
""",
}
"""An example of each table; together they are one file."""

BELOW: Final = {
    "bridge": (("bridge", "tls"),),
    "tool_servers": (("tool_servers", "*", "auth"), ("tool_servers", "*", "auth", "oauth2")),
    "agents": (
        ("agents", "*", "auth"),
        ("agents", "*", "auth", "oauth2"),
        ("agents", "*", "auth", "oauth2", "id_jag"),
    ),
    "catalogs": (("catalogs", "*", "auth"),),
    "tools_as_agent": (
        ("tools_as_agent", "*", "skills", "*"),
        ("tools_as_agent", "*", "skills", "*", "arguments", "*"),
    ),
    "agents_as_agent": (("agents_as_agent", "*", "skills", "*"),),
    "issuers": (("issuers", "*", "introspection"), ("issuers", "*", "operator")),
    "agents_as_tools": (
        ("agents_as_tools", "*", "tools", "*"),
        ("agents_as_tools", "*", "tools", "*", "arguments", "*"),
    ),
}
"""Tables in the tables, with their own keys."""

NOTES: Final = {
    "tool_servers": "A server has either `command` or `url`. `env` and `cwd` are for a command, `headers` and `auth` "
    "for a URL. A command runs in the folder of the file unless `cwd` names another. `roots` are folders, as paths "
    "from the folder of the file; this server gets them as `file:` URIs, and a server such as "
    "`@modelcontextprotocol/server-filesystem` then works in them and in no others. A key without a default has its "
    "value from the profile of `[bridge]`; `call_timeout_seconds` and `concurrency` have theirs from the profile of "
    "the agent.",
    "import": "The file of an MCP host has `mcpServers`, or `servers` of VS Code, and may have comments. Each server "
    "becomes a tool server. Its name is written in small letters, with `-` for other characters, and no two servers "
    "may get the same name. A mistake in an entry matters only if the bridge uses the server. Such a file may hold "
    "tokens and `Authorization` in plain text, because hosts know no other way. The bridge never shows them. "
    "`${NAME}`, `${NAME:-default}` and `${env:NAME}` come from the environment.\n\n"
    "A Hermes configuration is YAML, which takes `pip install 'mcp-a2a[yaml]'`. Each entry of its "
    '`a2a.client.known_agents` becomes an agent with `dialect = "hermes"`, named as a server is. The bearer token is '
    "in the variable that `token_env` names. The bridge leaves out an entry with OAuth 2 and warns, and `mcp-a2a "
    "check` reports a fault; write a table `[agents.NAME]` of the same name in its place. The file may have 262,144 "
    "bytes, 50 levels, and 50,000 values, where each alias counts as the values that it stands for.",
    "tools_as_agent": "Several overrides may match one skill. For each key, the exact name wins over a glob, and a "
    "later glob over an earlier one. A name is that of the tool (`delete`), or of its server and the tool "
    "(`github_delete`), whatever id the card shows now: see [which names count](mapping.md#rules-and-rights).",
    "agents_as_agent": "[An agent in front of agents](guides/agents-as-agents.md) says what its clients see. Several "
    "overrides may match one skill, as for `tools_as_agent`.",
    "agents_as_tools": "`from` takes names of agents, of catalogs, and of `tools_as_agent`. Several overrides may "
    "match one tool. For each key, the exact name wins over a glob, and a later glob over an earlier one. A name is "
    "that of the tool (`delete`), or of its agent and the tool (`notes_delete`), whatever name hosts see now: see "
    "[which names count](mapping.md#rules-and-rights).",
    "principals": "With principals, the bridge refuses a call without a token. A right in `skills` goes by [these "
    "names](mapping.md#rules-and-rights). `mcp-a2a people add NAME` writes such a "
    "table, with the hash of a token that it makes. Use a hash only for random tokens: a password can be guessed from "
    "its hash.",
    "groups": "A key in a principal's own table replaces the key of its group.",
    "issuers": "With issuers, the bridge refuses a call without a token, too. A JSON Web Token counts if one of its "
    "issuer's keys has signed it, its audience (`aud`) is the agent or MCP server that the caller asks, and it has not "
    "expired. Its principal is `NAME:SUBJECT`, with the name of this table: another name makes other owners of stored "
    "tasks. Without `public_url` in `[bridge]`, each agent and MCP server needs an `audience`.",
}

PROFILES: Final = """\
## Mapping profiles

A profile holds settings that many agents and MCP servers share. The profile `default` has every key. `strict`,
`long-running` and `compact` hold only the keys that differ from it ([mappings](../mappings/README.md)), and so can
your own profile:

```toml
extends = "default"

[run]
call_timeout_seconds = 600
```

The last column names the tables in which a key of the same name overrides the profile.

"""

OWNERS: Final = {
    "bridge": ("the process", "the profile that `[bridge] mapping` names"),
    "tools_as_agent": ("an agent made of tools", "the profile that its `mapping` names"),
    "agents_as_tools": ("an MCP server made of agents", "the profile that its `mapping` names"),
    "agents_as_agent": ("an agent made of agents", "the profile that its `mapping` names"),
}

OVERRIDERS: Final[tuple[tuple[str, Any, frozenset[str]], ...]] = (
    ("tool server", ToolServerTable, frozenset(("server", "run"))),
    ("agent made of tools", ToolsAsAgentTable, frozenset(("server", "route"))),
    ("skill", SkillTable, frozenset(("run", "route"))),
    ("agent", AgentTable, frozenset(("agents",))),
    ("tool", ToolTable, frozenset(("agents",))),
)
"""What may say otherwise than a profile, by a key of the same name, and for which of its tables."""


def configuration() -> str:
    """The page about the configuration file and its profiles."""
    schema = config_schema()
    parts = [HEAD]
    for section, example in SECTIONS.items():
        path = (section, *([] if section in ("bridge", "import", "push", "model", "audit") else ["*"]))
        parts.append(f"## {title(path)}\n\n{meaning_of(section)}\n\n```toml\n{example}```\n\n")
        parts.append("".join(table(schema, path)))
        for below in BELOW.get(section, ()):
            parts.append(f"### {title(below)}\n\n{''.join(table(schema, below))}")
    return "".join(parts) + "".join(profiles())


def meaning_of(section: str) -> str:
    """What a table is, with what else there is to say."""
    field = next(field for name, field in Config.model_fields.items() if (field.alias or name) == section)
    said = f"{field.description}."
    return f"{said[:1].upper()}{said[1:]} {NOTES.get(section, '')}".strip()


def title(path: tuple[str, ...]) -> str:
    """How a table is written: `[tools_as_agent.NAME.skills.NAME]`."""
    return f"`[{'.'.join('NAME' if step == '*' else step for step in path)}]`"


def table(schema: SchemaNode, path: tuple[str, ...]) -> Iterator[str]:
    """The keys of a table, one line each."""
    node = node_at(schema, path)
    required = node.get("required", [])
    yield "| key | takes | unit | default | meaning |\n|---|---|---|---|---|\n"
    for key, one in node["properties"].items():
        default = (
            "needed" if key in required else f"`{toml_value(one['default'])}`" if "default" in one else ""
        )
        yield row(f"`{key}`", takes_of(one), unit_of(key), default, one.get("description", ""))
    yield "\n"


def profiles() -> Iterator[str]:
    """The keys of profiles, by whom they belong to."""
    yield PROFILES
    schema, default = profile_schema(), read_toml(profile_place(), "the mapping profile")
    meanings = meanings_in(default)
    for name, keys in default.data.items():
        owners = [OWNERS[owner] for owner, tables in TABLES_OF.items() if name in tables]
        whose = " and ".join(owner for owner, _ in owners)
        yield f"### `[{name}]`\n\nOf {whose}: {owners[0][1]}.\n\n"
        yield "| key | takes | unit | default | meaning | overridden by |\n|---|---|---|---|---|---|\n"
        for key, value in keys.items():
            node = node_at(schema, (name, key))
            meaning = meanings[name, key]
            yield row(
                f"`{key}`",
                takes_of(node),
                unit_of(key),
                f"`{toml_value(value)}`",
                meaning,
                overriders(name, key),
            )
        yield "\n"


def overriders(name: str, key: str) -> str:
    """What may say otherwise."""
    return ", ".join(who for who, model, tables in OVERRIDERS if name in tables and key in model.model_fields)


def row(*cells: str) -> str:
    """A line of a table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def decisions() -> str:
    """The page with all decisions, in the order of their file names."""
    pages = sorted((DOCS / "decisions").glob("[0-9]*.md"))
    titles = {page.name: page.read_text(encoding="utf-8").partition("\n")[0] for page in pages}
    lines = [f"- [{title.removeprefix('# ')}]({name})\n" for name, title in titles.items()]
    return DECISIONS_HEAD + "".join(lines)


PAGES: Final[dict[str, Callable[[], str]]] = {
    "configuration.md": configuration,
    "mapping.md": mapping,
    "language.md": language,
    "decisions/README.md": decisions,
}


def main() -> None:
    """Write them."""
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
