"""The documentation holds: its links lead somewhere, and what stands in its blocks does what it says."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import click
import pytest

from bridge.config.load import load
from bridge.config.tables.profile import load_profile
from tests.benchmarks.__main__ import parser as benchmarks
from tests.benchmarks.cost import parser as cost
from tests.benchmarks.page import parser as page_of_benchmarks
from tests.hostile.soak.__main__ import parser as soak
from tests.peers.node import require_peers
from tests.support.command import ROOT, WAIT_SECONDS, Wrapping, run_here, wrapping
from tests.support.forked import through_server
from tests.support.pages import PAGES, Block, all_typed, blocks_of
from tests.support.reader import reading
from tests.walk.__main__ import parser as walk

GUIDES: Final = sorted((ROOT / "docs" / "guides").glob("*.md"))
READ: Final = [ROOT / "README.md", *GUIDES]
"""Pages that are read from the beginning to the end; tests/test_examples.py reads those of the examples."""

NOT_TYPED: Final[Mapping[str, str]] = {
    r"git clone ": "this is the clone",
    r"cd mcp-a2a$": "the reader is there",
    r"\. \.venv/bin/activate$": "the reader has the commands on their path",
    r"make (check|test|interop|attacks|bench|cost|fuzz|soak|conformance|proxies)\b": "CI or people run it, for minutes",
    r"make release\b": "people run it, for minutes; tests/release has its parts",
    r"make operate\b": "people run it, as it needs Prometheus",
    r"make shake\b": "CI runs it, and tests/shake/test_history.py has what it finds",
    r"python -m tests\.benchmarks(\.page)? ": "they measure for minutes; tests/test_benchmarks.py has their options",
    r".*\bexample\.com": "nobody answers at example.com",
    r"mcp-a2a \w+ https://desk\.lan:": "it is typed at another machine",
    r".*\buvx mcp-server-time": "it is fetched from the network; the one from npm is run from .peers",
    r"(uv tool|pipx) install git\+URL": "URL is the reader's",
    r"mcp-a2a init .*--from-registry ": "no registry answers; tests/cli/config/test_registry.py has its own",
    r"(prometheus|promtool) ": "tests/operate/test_rules.py types them, where Prometheus is installed",
    r"curl -s http://127\.0\.0\.1:8080/agents/desk ": "tests/tools_as_agent/test_shared_requests.py types it",
    r"sudo ": "it changes the machine; `make proxies` does the same without",
    r"claude ": "Claude Code is not there",
    r"(docker|kubectl|helm) ": "there is no daemon and no cluster; tests/deploy tries what they would run",
    r"(\./make-secrets\.sh|cd examples/deploy/compose)$": "tests/deploy/test_container.py makes them",
    r"mcp-a2a call --bearer file:secrets/ops_token ": "tests/deploy/test_compose_alive.py calls it",
    r"(sqlite3|pg_dump|createdb|pg_restore) ": "tests/assembly/test_restored_stores.py does it",
}
"""Lines that are not typed as they stand, and why."""

_OF_OTHERS: Final = "prometheus|promtool|openssl|curl|sudo|claude|docker|kubectl|helm|pg_dump|pg_restore"
"""Commands whose options are not ours."""

OTHERWISE_TYPED: Final[Mapping[str, str]] = {
    "mcp-a2a serve bridge.toml --fd 3 --replica-url unix:/run/mcp-a2a/1.sock --metrics 127.0.0.1:9461": (
        "tests/process/test_shared_listener.py"
    ),
    "curl --unix-socket /run/mcp-a2a/1.sock http://localhost/readyz": "the same",
    "cp mappings/default.toml mine.toml": "test_the_copied_profile_of_the_quickstart_is_taken",
    "mcp-a2a store migrate --store-url env:OWNER_URL bridge.toml": "test_the_commands_in_the_docs_about_replicas_work",
    "mcp-a2a store migrate --dry-run bridge.toml": "the same",
    "mcp-a2a store move old.toml new.toml": "the same",
    "mcp-a2a wrap --mapping mine.toml --port 8081 -- python examples/demo_server.py": "the same",
    "mcp-a2a keys new card.pem": "tests/cli/test_keys.py",
    "mcp-a2a audit verify audit.jsonl*": "tests/audit/test_chain.py",
    "curl -s http://127.0.0.1:8080/console/tasks.json": "tests/console/test_console_access.py",
    "curl -s -H 'Accept: application/json' http://127.0.0.1:8080/console/mapping": "the same",
    "mcp-a2a audit head audit.jsonl > /elsewhere/head": "the same",
    'mcp-a2a audit verify --head "$(cat /elsewhere/head)" audit.jsonl*': "the same",
    "mcp-a2a tasks http://127.0.0.1:8080 TASK --timeline": "tests/cli/task/test_tasks.py",
    "mcp-a2a tasks http://127.0.0.1:8080 TASK --timeline --json-output": "the same",
    "mcp-a2a tasks http://127.0.0.1:8080 --all --bearer env:TOKEN": "the same",
    "mcp-a2a tasks http://127.0.0.1:8080 TASK --all --bearer env:TOKEN": "the same",
    'mcp-a2a tasks http://127.0.0.1:8080 TASK --all --reply \'{"name": "Ada"}\' --bearer env:TOKEN': "the same",
}
"""Lines of pages that are not read whole, and where they are tried."""

PARSED_ALONE: Final = {"nginx": "make proxies", "caddyfile": "make proxies"}
"""Languages of blocks that need a program which may not be there, and who runs them."""


def left_out(line: str) -> bool:
    """Whether a line is not typed."""
    return any(re.match(pattern, line) for pattern in NOT_TYPED)


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    broken = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert broken == []


@pytest.mark.parametrize("page", READ, ids=[str(page.relative_to(ROOT)) for page in READ])
@pytest.mark.smoke("README.md", "docs/guides/wrap-a-server.md")
def test_what_a_page_says_happens(page: Path, tmp_path: Path) -> None:
    blocks = blocks_of(page)
    if any("npx" in block.text for block in blocks):
        require_peers()
    with reading(tmp_path, left_out) as reader:
        for block in blocks:
            reader.read(block)


def test_every_line_of_a_console_is_typed_by_a_test_or_says_why_not() -> None:
    read = {*READ, *(ROOT / "examples").glob("[0-9]*/*.md")}
    tried = {typed.line for _, typed in all_typed(read)} | set(CALLS) | OTHERWISE_TYPED.keys()
    untried = [
        f"{block.name}: {typed.line}"
        for block, typed in all_typed(PAGES)
        if typed.line not in tried and not left_out(typed.line)
    ]
    assert untried == []


def test_every_reason_for_not_typing_a_line_is_needed() -> None:
    lines = [typed.line for _, typed in all_typed(PAGES)]
    assert [one for one in NOT_TYPED if not any(re.match(one, line) for line in lines)] == []
    assert OTHERWISE_TYPED.keys() <= set(lines)


BLOCKS: Final = [block for page in PAGES for block in blocks_of(page)]


def test_blocks_are_of_languages_that_are_looked_at() -> None:
    # Without a language it is a drawing; tests/store/test_postgres.py runs what is SQL.
    known = {"console", "toml", "json", "yaml", "python", "sql", *PARSED_ALONE, ""}
    assert [block.name for block in BLOCKS if block.language not in known] == []


def test_python_stands_on_pages_that_are_read() -> None:
    assert {block.page for block in BLOCKS if block.language == "python"} <= set(READ)


@pytest.mark.parametrize("block", [one for one in BLOCKS if one.language == "json"], ids=lambda one: one.name)
def test_json_is_json(block: Block) -> None:
    try:
        json.loads(block.text)
    except json.JSONDecodeError:
        assert [json.loads(line) for line in block.text.splitlines()]


class Anything(Mapping[str, str]):
    """An environment in which every variable is set, each to a value of its own, and to a URL if it is named so."""

    def __getitem__(self, name: str) -> str:
        return f"postgresql:///value-of-{name}" if name.endswith("_URL") else f"value-of-{name}"

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __contains__(self, name: object) -> bool:
        return True


AROUND: Final[Mapping[str, str]] = {
    "security.md": """
[tool_servers.github]
command = ["github"]
[tools_as_agent.devtools]
from = ["github"]
""",
}
"""What a page takes for granted around what it shows."""

WITH_TOML: Final = sorted({one.page for one in BLOCKS if one.language == "toml" and not one.file})


@pytest.mark.parametrize("page", WITH_TOML, ids=[str(page.relative_to(ROOT)) for page in WITH_TOML])
def test_the_toml_of_a_page_is_a_configuration_or_a_profile(page: Path, tmp_path: Path) -> None:
    blocks = [one.text for one in blocks_of(page) if one.language == "toml" and not one.file]
    profiles = [text for text in blocks if text.startswith("extends")]
    for number, text in enumerate(profiles):
        (tmp_path / f"{number}.toml").write_text(text)
        assert load_profile(str(tmp_path / f"{number}.toml"))
    shown = "\n".join([AROUND.get(page.name, ""), *(text for text in blocks if text not in profiles)])
    text = shown.replace("/run/secrets/", f"{tmp_path}/")
    for name in re.findall(r'file = "([^"]+)"', text):
        (tmp_path / name).write_text("a-secret-for-this-test")
    (tmp_path / "mcp.json").write_text('{"mcpServers": {}}')
    yaml = [one.text for one in blocks_of(page) if one.language == "yaml"]
    (tmp_path / "hermes_config.yaml").write_text("".join(yaml) or "a2a: { client: { known_agents: [] } }")
    (tmp_path / "bridge.toml").write_text(text)
    assert load(tmp_path / "bridge.toml", Anything()) or profiles


# The quickstart, whose server is started once for all of its lines

QUICKSTART: Final = ROOT / "docs" / "quickstart.md"
CALLS: Final = [
    typed.line
    for _, typed in all_typed([QUICKSTART])
    if re.match(r"(mcp-a2a (card|call|tasks)|curl)\b", typed.line)
]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wrapping]:
    state = tmp_path_factory.mktemp("state")
    server = tuple(through_server(str(ROOT / "examples" / "demo_server.py")))
    with wrapping("--era", "auto", state=state, server=server) as bridge:
        yield bridge


def test_the_quickstart_has_commands_to_test() -> None:
    assert len(CALLS) == 10


@pytest.mark.parametrize("line", CALLS)
def test_each_call_of_the_quickstart_works(line: str, demo: Wrapping, tmp_path: Path) -> None:
    words = shlex.split(line.replace("127.0.0.1:8080", f"127.0.0.1:{demo.port}"))
    if words[0] == "mcp-a2a":
        ours = [sys.executable if word == "python" else word for word in words[1:]]
        done = run_here(*ours, state=tmp_path)
    else:
        done = subprocess.run(words, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
    asks = words[-2:] == ["book", "destination=Lisbon"]  # of which nobody is asked here
    assert done.returncode == (3 if asks else 0), done.stderr
    assert "--task" in done.stderr if asks else done.stdout.strip()


def test_the_copied_profile_of_the_quickstart_is_taken(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text((ROOT / "mappings" / "default.toml").read_text())
    with wrapping("--mapping", str(tmp_path / "mine.toml"), state=tmp_path) as bridge:
        assert "raw 1.2.3" in "".join(bridge.lines)


def commands_of(group: click.Group, context: click.Context) -> Iterator[click.Command]:
    """The commands of a group, and of the groups in it."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands_of(command, context)
        elif command is not None:
            yield command


def test_every_option_in_the_documentation_exists() -> None:
    from bridge.cli.main import cli

    commands = list(commands_of(cli, click.Context(cli)))
    known = {option for command in commands for parameter in command.params for option in parameter.opts}
    known |= {"--help", "--version"}
    for parser in (benchmarks, cost, page_of_benchmarks, soak, walk):
        known |= set(re.findall(r"--[a-z][a-z-]+", parser().format_help()))
    ours = {
        page: re.sub(rf"^\$ ({_OF_OTHERS}) .*$", "", page.read_text(), flags=re.MULTILINE) for page in PAGES
    }
    pages = {page: set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) for page, text in ours.items()}
    unknown = {
        str(page.relative_to(ROOT)): sorted(found - known) for page, found in pages.items() if found - known
    }
    assert unknown == {}
