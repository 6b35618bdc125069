"""`mcp-a2a check`: the faults of a file, what would be served, and what prevents it."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from bridge.a2a.wire.canonical_card import CardForm
from bridge.cli import render
from bridge.store.postgres.table_steps import Namespace
from bridge.store.sqlite_schema import APPLICATION_ID
from tests.config.test_broken import BROKEN, ENVIRONMENT
from tests.support.addresses import a_web_page, an_mcp_server
from tests.support.command import ROOT, WAIT_SECONDS, environment, run_here
from tests.support.files import DEVTOOLS, RAW, TEAM, an_agent, started, written
from tests.support.forked import Forked
from tests.support.ports import free_port
from tests.support.postgres import database_url, new_agent
from tests.support.running import RAW_SERVER
from tests.support.signed_cards import key, signed
from tests.support.terminals import open_terminal

TEN_BROKEN = (
    "command_as_one_text",
    "key_twice",
    "missing_key",
    "no_source",
    "out_of_range",
    "secret_in_plain",
    "secret_not_set",
    "syntax",
    "unknown_key",
    "wrong_type",
)

LEAVES_A_TRACE = f"command = {json.dumps([sys.executable, '-c', 'open(chr(120), chr(119))'])}\n"
"""A server that writes a file `x` when it is started."""


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    """A foreign agent for all tests of this file."""
    with an_agent() as url:
        yield url


def check(tmp_path: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return run_here(
        "check", *words, state=tmp_path / "state", folder=tmp_path, XDG_CACHE_HOME=str(tmp_path / "c"), **more
    )


def found_in(tmp_path: Path, *words: str, **more: str) -> dict[str, Any]:
    done = check(tmp_path, "--json", *words, **more)
    found = json.loads(done.stdout)
    assert (done.returncode == 0) is found["ok"] is (not found["faults"])
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("name", TEN_BROKEN)
def test_a_broken_file_is_shown_with_line_caret_and_help(name: str, tmp_path: Path) -> None:
    done = run_here("check", f"{name}.toml", state=tmp_path, folder=BROKEN, **ENVIRONMENT)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.replace(str(BROKEN), "FOLDER") == (BROKEN / f"{name}.txt").read_text()


def test_every_tool_is_shown_with_its_skill_and_every_skill_with_its_tool(agent: str, tmp_path: Path) -> None:
    skills = "skills.add = { id = 'sum', name = 'Add two' }\nskills.die = { hidden = true }\n"
    research = f"[agents.research]\ncard = '{agent}'\n"
    team = "[agents_as_tools.team]\nfrom = ['devtools', 'research']\ntools.sum = { name = 'plus' }\n"
    written(tmp_path, RAW, DEVTOOLS, skills, research, team)
    done = check(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["✓", "raw", "raw", "1.2.3,", "16", "tools"] in lines
    assert any(line[:2] == ["✓", "research"] and "1.0" in line for line in lines)
    assert ["skill", "sum", "<->", "raw:", "add", "Add", "two"] in lines
    assert ["tool", "plus", "<->", "devtools:", "sum", "Add", "two"] in lines
    assert ["tool", "research_echo", "<->", "research:", "echo"] in [line[:5] for line in lines]
    assert "die" not in {word for line in lines for word in line}
    assert done.stdout.splitlines()[-1] == "bridge.toml: all is well"


def test_an_address_without_an_agent_is_reported_and_has_no_tools(tmp_path: Path) -> None:
    with an_mcp_server() as server, a_web_page() as page:
        written(
            tmp_path,
            f"[agents.one]\ncard = '{server}'\n[agents.two]\ncard = '{page}'\n",
            "[agents_as_tools.team]\nfrom = ['one', 'two']\n",
        )
        found = found_in(tmp_path)
    one, two = found["faults"]
    assert one.startswith(f"agents.one cannot be called: {server} is not an A2A agent. It is an MCP server")
    assert two.startswith(f"agents.two cannot be called: {page} is not an A2A agent. It is a web page")
    assert [face["rows"] for face in found["faces"]] == [[]]


def test_a_peer_that_is_down_is_a_fault_with_its_reason(tmp_path: Path) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    written(
        tmp_path,
        RAW,
        f"[tool_servers.gone]\nurl = '{nowhere}/mcp'\n[agents.away]\ncard = '{nowhere}'\n",
        f"[catalogs.lost]\nurl = '{nowhere}/agents'\n",
        "[tools_as_agent.devtools]\nfrom = ['raw', 'gone']\n",
        "[agents_as_tools.team]\nfrom = ['away', 'lost']\n",
    )
    found = found_in(tmp_path)
    gone, away, lost = found["faults"]
    assert gone.startswith(f"tool_servers.gone cannot be called: {nowhere}/mcp cannot be reached: Connection")
    assert gone.endswith("`serve` would end at once (fail = closed)")
    assert away.startswith(f"agents.away cannot be called: {nowhere}/")
    assert lost.startswith(f"catalogs.lost cannot be called: {nowhere}/agents cannot be reached")
    shown = check(tmp_path).stdout
    assert "✗ gone" in shown
    assert "skill echo" in shown
    assert shown.splitlines()[-1] == "bridge.toml: 3 faults"


@contextmanager
def an_agent_of(
    version: str, signed: Callable[[dict[str, Any]], dict[str, Any]] = lambda card: card
) -> Iterator[str]:
    """A server with the card of an agent in this version only, with this signature; its URL."""

    class Card(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host, port = self.server.server_address[:2]
            interface = {
                "url": f"http://{host}:{port}",
                "protocolBinding": "JSONRPC",
                "protocolVersion": version,
            }
            card = {
                "name": "Old",
                "description": "",
                "version": "1",
                "supportedInterfaces": [interface],
                "capabilities": {},
                "defaultInputModes": ["text/plain"],
                "defaultOutputModes": ["text/plain"],
                "skills": [{"id": "talk", "name": "Talk", "description": "Talks"}],
            }
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(signed(card)).encode())

        def log_message(self, *words: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Card) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def test_versions_that_do_not_fit_are_faults(tmp_path: Path) -> None:
    with an_agent_of("7.0") as url:
        written(
            tmp_path,
            RAW.replace("legacy", "modern"),
            DEVTOOLS,
            f"[agents.old]\ncard = '{url}'\n[agents_as_tools.team]\nfrom = ['old']\n",
        )
        raw, old = found_in(tmp_path)["faults"]
    assert raw.startswith("tool_servers.raw cannot be called: ")
    assert old.startswith("agents.old cannot be called: Old offers JSONRPC 7.0, and this client speaks ")


def test_a_deviation_of_a_card_is_a_note(tmp_path: Path) -> None:
    with an_agent_of("1.0") as url:
        written(tmp_path, f"[agents.old]\ncard = '{url}'\n[agents_as_tools.team]\nfrom = ['old']\n")
        found = found_in(tmp_path)
    assert found["faults"] == []
    assert any(note.startswith("agents.old: does not conform to A2A: ") for note in found["notes"])


def test_an_extension_that_a_card_does_not_declare_is_a_note(tmp_path: Path) -> None:
    with an_agent_of("1.0") as url:
        agent = f"[agents.old]\ncard = '{url}'\nextensions = ['urn:stamp:v1']\n"
        written(tmp_path, f"{agent}[agents_as_tools.team]\nfrom = ['old']\n")
        notes = found_in(tmp_path)["notes"]
    words = "agents.old: its card does not declare the extension urn:stamp:v1, which is not activated"
    assert words in notes


@pytest.mark.parametrize(
    ("signs", "faults", "notes"),
    [
        (lambda card: signed(card, key()), [], []),
        (lambda card: card, ["is not signed"], []),
        (lambda card: signed(card, key(number=1)), ["is not trusted"], []),
        (
            lambda card: signed(
                {**card, "securityRequirements": [{"schemes": {"x": {"list": []}}}]},
                key(),
                forms=(CardForm.SDK,),
            ),
            [],
            [
                "in the form of the SDKs, which does not cover capabilities, securityRequirements; none is used"
            ],
        ),
    ],
    ids=["signed", "unsigned", "by-another", "of-the-sdks"],
)
def test_a_card_that_is_not_signed_as_the_file_says_is_a_fault_and_what_sdks_do_not_see_a_note(
    signs: Callable[[dict[str, Any]], dict[str, Any]], faults: list[str], notes: list[str], tmp_path: Path
) -> None:
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [dict(key().public)]}))
    signer = "signed_by = { file = 'keys.json', form = 'sdk' }"
    with an_agent_of("1.0", signs) as url:
        agent = f"[agents.old]\ncard = '{url}'\n{signer}\n"
        written(tmp_path, f"{agent}[agents_as_tools.team]\nfrom = ['old']\n")
        found = found_in(tmp_path)
    said = [note for note in found["notes"] if "signed" in note]
    assert all(words in fault for words, fault in zip(faults, found["faults"], strict=True))
    assert all(words in note for words, note in zip(notes, said, strict=True))


def test_a_file_of_keys_that_cannot_be_used_is_a_fault_without_a_connection(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text("{}")
    agent = "[agents.old]\ncard = 'https://a.test'\nsigned_by = { file = 'keys.json' }\n"
    written(tmp_path, f"{agent}[agents_as_tools.team]\nfrom = ['old']\n")
    done = check(tmp_path, "--json", "--offline")
    [fault] = json.loads(done.stdout)["faults"]
    assert fault.startswith("agents.old: signed_by.file: the keys in ")
    assert fault.endswith("keys.json cannot be used: it is not a JSON Web Key Set")


@pytest.mark.parametrize("scheme", ["bearer", "api_key"])
def test_agents_of_the_same_file_are_called_even_if_others_need_credentials(
    scheme: str, tmp_path: Path
) -> None:
    written(tmp_path, RAW, DEVTOOLS, TEAM, f"[principals.ada]\n{scheme} = {{ env = 'A' }}\n")
    assert found_in(tmp_path, A="a")["faults"] == []


def test_the_address_of_a_server_shows_no_secret(tmp_path: Path) -> None:
    servers = {
        "a": {"command": "true", "args": ["--token", "${HIDDEN}"]},
        "b": {"url": f"http://127.0.0.1:{free_port()}/${{HIDDEN}}/mcp?key=${{HIDDEN}}"},
    }
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    face = "[tools_as_agent.devtools]\nfrom = ['a', 'b']\nfail = 'open'\n"
    written(tmp_path, "[import]\nmcp_json = 'mcp.json'\n", face)
    for words in (("--offline",), ()):
        found = found_in(tmp_path, *words, HIDDEN="hunter2")
        assert [peer["where"].replace("${HIDDEN}", "H") for peer in found["peers"]] == [
            "true --token H",
            servers["b"]["url"].replace("${HIDDEN}", "H").partition("?")[0],
        ]
        assert "hunter2" not in json.dumps(found)
        assert "hunter2" not in check(tmp_path, *words, HIDDEN="hunter2").stdout


@pytest.mark.parametrize("words", ["mapping = '{0}'", "mapping = './{0}'", "store = 1{1}"])
def test_an_invalid_value_is_a_fault_of_the_file(words: str, tmp_path: Path) -> None:
    written(tmp_path, "[bridge]\n", words.format("a" * 300, "0" * 5000))
    done = check(tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "1 error in bridge.toml" in done.stderr


def test_at_a_terminal_it_is_said_how_far_it_is(tmp_path: Path) -> None:
    written(tmp_path, RAW, DEVTOOLS)
    ours, theirs = open_terminal()
    command = [sys.executable, "-P", "-m", "bridge", "check", "--json"]
    with Forked(
        command, stdout=subprocess.PIPE, stderr=theirs, cwd=tmp_path, env=environment(tmp_path / "state")
    ) as process:
        os.close(theirs)
        out, _ = process.communicate(timeout=WAIT_SECONDS)
        said = os.read(ours, 4096).decode()
        os.close(ours)
    assert "connecting to raw: " in said
    assert "raw is up, 16 tools" in said
    assert json.loads(out)["ok"] is True


def at_a_terminal(tmp_path: Path, *words: str) -> tuple[int, list[str]]:
    """Run the command at a terminal of 80 columns; its exit code, and the lines that it shows."""
    ours, theirs = open_terminal(columns=80)
    shown = b""
    with Forked(
        [sys.executable, "-P", "-m", "bridge", *words],
        stdout=theirs,
        stderr=theirs,
        cwd=tmp_path,
        env=environment(tmp_path / "state", TERM="xterm"),
    ) as process:
        os.close(theirs)
        with suppress(OSError):  # which says that nobody is at the other end any more
            while part := os.read(ours, 4096):
                shown += part
        os.close(ours)
        return process.wait(WAIT_SECONDS), shown.decode().splitlines()


@pytest.mark.parametrize("command", ["check", "serve"])
def test_at_a_terminal_what_is_wrong_with_a_file_is_cut_between_words(command: str, tmp_path: Path) -> None:
    written(tmp_path, "[tool_servers.raw]\nurl = 'http://127.0.0.1:1/mcp'\nzzz = 1\n")
    code, lines = at_a_terminal(tmp_path, command)
    assert code == 2
    assert lines == [
        "error: unknown key `zzz` in [tool_servers.raw]",
        " --> bridge.toml:3:1",
        "  |",
        "3 | zzz = *",
        "  | ^^^",
        "  |",
        "help: there is `command`, `url`, `env`, `cwd`, `roots`, `headers`, `auth`,",
        "  `login`, `login_seconds`, `login_keep_days`, `tls`, `transport`, `proxy`,",
        "  `era`, `fail`, `session`, `sessions`, `sessions_most`, `session_idle_seconds`,",
        "  `contended_question_seconds`, `attribution_seconds`, `connect_seconds`,",
        "  `start_seconds`, `longest_pause_seconds`, `retire_seconds`, `settle_seconds`,",
        "  `relist_seconds`, `child_flush_seconds`, `child_exit_seconds`,",
        "  `child_quiet_seconds`, `child_output_seconds`, `result_limit_bytes`,",
        "  `result_json_values`, `tools_most`, `tools_limit_bytes`, `schema_values`,",
        "  `unanswered_most`, `allow_private`, `known`, `pinned`, `each_replica`,",
        "  `concurrency` and `call_timeout_seconds`",
        "",
        "1 error in bridge.toml",
    ]


def test_at_a_terminal_the_faults_of_a_check_are_cut_between_words(tmp_path: Path) -> None:
    written(tmp_path, RAW, DEVTOOLS, "skills.echo = { id = 'add' }\n")
    code, lines = at_a_terminal(tmp_path, "check")
    assert code == 1
    (title,) = [number for number, line in enumerate(lines) if "Faults" in line]
    assert lines[title + 1 : -2] == [
        "  bridge.toml:6: tools_as_agent.devtools: skills.echo.id: another skill has or",
        "    wants the id 'add', so it stays 'echo'",
    ]


def test_a_line_of_a_file_and_a_command_are_never_cut() -> None:
    line = "12 | command = ['npx', '-y', '@modelcontextprotocol/server-everything']"
    assert render.wrapped(line, 20) == [line]
    assert render.wrapped("help: servers are taken by `mcp-a2a wrap --from-json x` alone", 20) == [
        "help: servers are",
        "  taken by",
        "  `mcp-a2a wrap --from-json x`",
        "  alone",
    ]


def test_rules_that_do_nothing_and_names_that_cannot_be_given_are_faults(tmp_path: Path) -> None:
    skills = "skills.nothing = { hidden = true }\nskills.echo = { id = 'add' }\n"
    written(tmp_path, RAW, DEVTOOLS, skills, TEAM, "tools.fail = { name = 'not a name' }\n")
    nothing, taken, name = found_in(tmp_path)["faults"]
    assert nothing == "tools_as_agent.devtools: skills.nothing: there is no such tool"
    assert taken.startswith(
        "tools_as_agent.devtools: skills.echo.id: another skill has or wants the id 'add'"
    )
    assert name.startswith("agents_as_tools.team: tools.fail.name: hosts refuse the name 'not a name'")


GLOBS = """
[tools_as_agent.devtools]
from = ["raw"]
skills."delete_*" = { hidden = true }
skills."ech?".confirm = true
[tools_as_agent.devtools.skills."write_*"]
confirm = true
[agents_as_tools.team]
from = ["devtools"]
tools."[xyz]*" = { title = "None" }
tools."e*" = { title = "Some" }
[principals.ada]
bearer = { env = "A" }
skills = [
  "devtools/e*",
  "devtools/delete_*",
  "team/x*",
  "task_*",
]
"""


def test_a_glob_that_matches_nothing_is_a_fault_with_its_file_and_line(tmp_path: Path) -> None:
    written(tmp_path, GLOBS, RAW)
    done = check(tmp_path, A="a")
    assert done.returncode == 1
    faults = [line.strip() for line in done.stdout.partition("\nFaults\n")[2].splitlines()[:-2]]
    assert faults == [
        "bridge.toml:4: tools_as_agent.devtools: skills.delete_*: it matches no tool",
        "bridge.toml:6: tools_as_agent.devtools: skills.write_*: it matches no tool",
        "bridge.toml:10: agents_as_tools.team: tools.[xyz]*: it matches no tool",
        "bridge.toml:16: principals.ada: skills: `devtools/delete_*` matches nothing that is served",
        "bridge.toml:17: principals.ada: skills: `team/x*` matches nothing that is served",
    ]
    assert found_in(tmp_path, A="a")["places"] == [f"bridge.toml:{line}" for line in (4, 6, 10, 16, 17)]


def test_a_glob_is_no_fault_while_a_server_has_not_listed_its_tools(tmp_path: Path) -> None:
    gone = f"[tool_servers.gone]\nurl = 'http://127.0.0.1:{free_port()}/mcp'\n"
    written(tmp_path, GLOBS.replace('["raw"]', '["raw", "gone"]'), RAW, gone)
    (fault,) = found_in(tmp_path, A="a")["faults"]
    assert fault.startswith("tool_servers.gone cannot be called")


def test_a_rule_without_effect_in_a_profile_is_shown_with_its_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("extends = 'default'\n[route]\ndefault_skill = 'nothing'\n")
    written(tmp_path, RAW, DEVTOOLS, "mapping = './mine.toml'\n")
    found = found_in(tmp_path)
    assert found["faults"] == ["tools_as_agent.devtools: route.default_skill: there is no skill 'nothing'"]
    assert [place.rpartition("/")[2] for place in found["places"]] == ["mine.toml:3"]


def test_a_phrase_of_a_profile_that_cannot_help_is_shown_with_its_file_and_line(tmp_path: Path) -> None:
    phrases = 'echo = ["say {nothing}"]\nadd = ["put {a} to {b}"]'
    (tmp_path / "mine.toml").write_text(f"extends = 'default'\n[route.phrases]\n{phrases}\n")
    written(tmp_path, RAW, DEVTOOLS, "mapping = './mine.toml'\n")
    found = found_in(tmp_path)
    assert found["faults"] == [
        "tools_as_agent.devtools: route.phrases.echo: the phrase 'say {nothing}' is not used: the tool has no argument"
        " 'nothing'"
    ]
    assert [place.rpartition("/")[2] for place in found["places"]] == ["mine.toml:2"]


def test_tools_of_which_nothing_says_whether_they_only_read_are_listed(tmp_path: Path) -> None:
    written(tmp_path, RAW, DEVTOOLS, "skills.add = { read_only = true }\nskills.die = { hidden = true }\n")
    (note,) = [note for note in found_in(tmp_path)["notes"] if "only read" in note]
    names = note.partition("runs one: ")[2].partition(". A line")[0].split(", ")
    assert "fail" in names
    assert {"add", "echo", "die"}.isdisjoint(names)


def test_the_ready_mapping_of_a_server_is_shown_with_the_tools_that_are_missing(tmp_path: Path) -> None:
    runs = f"import runpy, sys\nrunpy.run_path({str(RAW_SERVER)!r}, run_name='__main__')\n"
    (tmp_path / "mcp_server_time.py").write_text(runs)
    command = json.dumps([sys.executable, "-m", "mcp_server_time"])
    server = f"[tool_servers.clock]\ncommand = {command}\n"
    written(tmp_path, server, "[tools_as_agent.devtools]\nfrom = ['clock']\n")

    found, offline = found_in(tmp_path), found_in(tmp_path, "--offline")
    words = check(tmp_path).stdout

    assert found["faults"] == []
    assert [peer["ready_mapping"] for peer in (*found["peers"], *offline["peers"])] == ["time", "time"]
    assert (
        "tool_servers.clock: the ready mapping time has words for tools that the server does not list:"
        " get_current_time, convert_time"
    ) in found["notes"]
    assert "16 tools, with the ready mapping time" in words
    written(tmp_path, f"{server}known = false\n", "[tools_as_agent.devtools]\nfrom = ['clock']\n")
    assert [peer["ready_mapping"] for peer in found_in(tmp_path)["peers"]] == [""]


def test_a_tool_that_cannot_be_served_is_a_fault(tmp_path: Path) -> None:
    bad = RAW.replace('raw_server.py"]', 'raw_server.py", "--bad-tools"]')
    written(tmp_path, bad, DEVTOOLS)
    found = found_in(tmp_path)
    assert found["faults"]
    assert all(fault.startswith("tool_servers.raw: the tool ") for fault in found["faults"])
    assert any(
        note.startswith(
            "tool_servers.raw: not all arguments of the tool broken-schema are checked: its schema is not valid"
        )
        for note in found["notes"]
    )


def test_check_shows_who_may_use_what(tmp_path: Path) -> None:
    principals = (
        "[principals.ada]\nbearer = { env = 'A' }\n"
        "[principals.bob]\nbearer = { env = 'B' }\nskills = ['devtools/*e*', 'team/add']\n"
        "[principals.eve]\nbearer = { env = 'E' }\nskills = ['nothing']\n"
    )
    written(tmp_path, RAW, DEVTOOLS, TEAM, principals)
    found = found_in(tmp_path, A="a", B="b", E="e")
    devtools, team = found["faces"]
    names = [row["name"] for row in devtools["rows"]]
    assert devtools["usable"]["ada"] == names
    assert devtools["usable"]["bob"] == [name for name in names if "e" in name]
    assert team["usable"] == {"ada": [row["name"] for row in team["rows"]], "bob": ["add"], "eve": []}
    assert found["faults"] == ["principals.eve: skills: `nothing` matches nothing that is served"]
    shown = check(tmp_path, A="a", B="b", E="e").stdout
    assert "bob may use 1 of 16: add" in shown
    assert "ada may use all of them" in shown


def test_an_unused_peer_is_a_note_and_is_not_started(tmp_path: Path) -> None:
    written(tmp_path, RAW, DEVTOOLS, "[tool_servers.spare]\n", LEAVES_A_TRACE)
    found = found_in(tmp_path)
    assert found["notes"][0] == "tool_servers.spare is in no `from`: it is not started"
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("options", [(), ("--offline",)])
def test_an_issuer_whose_metadata_is_not_read_is_noted_for_what_its_cards_do_not_say(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    issuer = (
        "[issuers.corp]\nissuer = 'https://login.example.com'\njwks_url = 'https://login.example.com/keys'\n"
        "audience.devtools = ['api://devtools']\n"
    )
    written(tmp_path, RAW, DEVTOOLS, issuer)
    note, *_ = json.loads(check(tmp_path, "--json", *options).stdout)["notes"]
    assert note.startswith("issuers.corp: its metadata is not read, since `jwks_url` is set: cards ask")


def test_offline_nothing_is_started_and_unchecked_things_are_listed(tmp_path: Path) -> None:
    written(tmp_path, "[tool_servers.raw]\n", LEAVES_A_TRACE, DEVTOOLS, TEAM)
    done = check(tmp_path, "--offline")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "x").exists()
    assert "Not checked\n  whether tool_servers.raw can be called" in done.stdout
    assert "names, collisions, rules without effect" in done.stdout
    assert "/mcp/team" in done.stdout
    assert done.stdout.splitlines()[-1] == "bridge.toml: no faults in what was checked"


def test_a_silent_server_is_awaited_for_the_given_time_only(tmp_path: Path) -> None:
    silent = json.dumps([sys.executable, "-c", "import sys; sys.stdin.read()"])
    written(tmp_path, f"[tool_servers.raw]\ncommand = {silent}\nera = 'legacy'\n", DEVTOOLS)
    (fault,) = found_in(tmp_path, "--wait-seconds", "0.3")["faults"]
    assert fault.startswith("tool_servers.raw cannot be called: ")
    assert "0.3 s" in fault


def test_nothing_is_kept_and_a_key_is_not_made(tmp_path: Path) -> None:
    written(tmp_path, "[bridge]\nstore = 'tasks.db'\nkeys = [{ file = 'handle.key' }]\n", RAW, DEVTOOLS, TEAM)
    assert check(tmp_path).returncode == 0
    assert [file.name for file in tmp_path.rglob("*") if file.suffix in (".db", ".key")] == []


def test_a_key_that_everyone_can_read_is_refused(tmp_path: Path) -> None:
    written(tmp_path, "[bridge]\nkeys = [{ file = 'handle.key' }]\n", RAW, DEVTOOLS, TEAM)
    (tmp_path / "handle.key").write_text("k" * 64)
    (tmp_path / "handle.key").chmod(0o644)
    done = check(tmp_path)
    assert done.returncode == 2
    assert "everyone on this machine can read" in done.stderr


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ((RAW,), "serves nothing"),
        (("[bridge]\nhost = '0.0.0.0'\n", RAW, DEVTOOLS), "[principals.NAME]"),
    ],
)
def test_what_serve_would_refuse_is_refused(parts: tuple[str, ...], words: str, tmp_path: Path) -> None:
    written(tmp_path, *parts)
    done = check(tmp_path, "--offline")
    assert done.returncode == 2
    assert words in done.stderr


def test_without_a_file_the_message_says_how_to_make_it(tmp_path: Path) -> None:
    done = check(tmp_path)
    assert done.returncode == 2
    assert "mcp-a2a init" in done.stderr


def test_an_agent_of_a_hermes_configuration_that_wants_oauth_2_is_a_fault(tmp_path: Path) -> None:
    agents = "[{ name: billing, url: 'https://billing.example', auth: { type: oauth2 } }]"
    (tmp_path / "hermes.yaml").write_text(f"a2a:\n  client:\n    known_agents: {agents}\n")
    written(tmp_path, "[import]\nknown_agents = 'hermes.yaml'\n", RAW, DEVTOOLS, TEAM)
    found = found_in(tmp_path, "--offline")
    assert [found["ok"], found["places"], len(found["faults"])] == [False, ["hermes.yaml:3"], 1]
    assert found["faults"][0].startswith("agents.billing is left out: it needs OAuth 2")
    assert check(tmp_path, "--offline").returncode == 1


def test_scopes_that_open_nothing_are_faults_and_a_claim_that_may_move_is_noted(tmp_path: Path) -> None:
    issuer = (
        "[issuers.corp]\nissuer = 'https://login.example.com'\nprincipal = 'email'\n"
        "audience = { devtools = ['api://devtools'] }\nscopes.read = ['echo', 'nothing']\n"
    )
    written(tmp_path, RAW, DEVTOOLS, issuer)
    found = found_in(tmp_path)
    assert found["faults"] == ["issuers.corp: scopes.read: `nothing` matches nothing that is served"]
    (note,) = [one for one in found["notes"] if one.startswith("issuers.corp")]
    assert "`email` tells its principals apart" in note


def test_the_redirect_uris_to_register_are_listed(tmp_path: Path) -> None:
    (tmp_path / "bridge.toml").write_text("""
[bridge]
public_url = "https://bridge.example.com"
console = true
keys = [{ env = "SEAL_KEY" }]
[issuers.corp]
issuer = "https://login.example.com"
login = { client_id = "bridge" }
[tool_servers.crm]
url = "https://crm.example.com/mcp"
login = "each"
auth = { oauth2 = { grant = "authorization_code", client_id = "at-crm" } }
[tool_servers.docs]
url = "https://docs.example.com/mcp"
auth = { oauth2 = { grant = "authorization_code", client_id = "at-docs" } }
[tool_servers.registers_itself]
url = "https://self.example.com/mcp"
login = "each"
auth = { oauth2 = { grant = "authorization_code" } }
[tools_as_agent.desk]
from = ["crm", "docs", "registers_itself"]
""")
    listed = found_in(tmp_path, "--offline", SEAL_KEY="k" * 32)["redirect_uris"]
    assert {(one["client"], one["uri"]) for one in listed} == {
        ("tool_servers.crm", "https://bridge.example.com/login/back"),
        ("tool_servers.docs", "http://127.0.0.1:PORT/callback"),
        ("issuers.corp", "https://bridge.example.com/login/who"),
        ("issuers.corp", "https://bridge.example.com/console/signed-in"),
    }
    said = check(tmp_path, "--offline", SEAL_KEY="k" * 32).stdout
    assert "https://bridge.example.com/login/who  for callers who show who they are" in said


def test_a_certificate_that_cannot_be_used_is_a_fault_of_its_line(tmp_path: Path) -> None:
    tls = '[bridge]\ntls = { certificate = "none.pem", key = "none.key" }\n'
    written(tmp_path, tls, RAW, DEVTOOLS)
    why = f"bridge.tls.certificate: {tmp_path / 'none.pem'} cannot be read: No such file or directory"
    assert found_in(tmp_path, "--offline")["faults"] == [why]
    said = check(tmp_path, "--offline")
    assert f"bridge.toml:2: {why}" in " ".join(said.stdout.split())


def test_a_key_that_serve_would_refuse_is_a_fault_of_its_line(tmp_path: Path) -> None:
    keys = '[bridge]\nkeys = [{ file = "handle.key" },\n{ env = "SHORT" }]\n'
    written(tmp_path, keys, RAW, DEVTOOLS)
    said = check(tmp_path, "--offline", SHORT="k" * 31)
    assert (said.returncode, "k" * 31 in said.stdout + said.stderr) == (1, False)
    words = "bridge.toml:3: bridge.keys: the key has fewer than 32 bytes, so it can be guessed"
    assert words in " ".join(said.stdout.split())
    assert check(tmp_path, "--offline", SHORT="k" * 32).returncode == 0


@pytest.mark.parametrize(
    ("line", "key", "package", "extra"),
    [
        ("console = true", "console", "jinja2", "console"),
        ('traces = "http://127.0.0.1:4318"', "traces", "opentelemetry.sdk", "otel"),
        (
            'store = "postgresql://127.0.0.1:1/tasks"\nkeys = [{ file = "a.key" }]',
            "store",
            "psycopg",
            "postgres",
        ),
    ],
    ids=["console", "traces", "store"],
)
@pytest.mark.smoke("console")
def test_a_package_that_serve_would_miss_is_a_fault_of_its_line(
    line: str, key: str, package: str, extra: str, tmp_path: Path
) -> None:
    missing = tmp_path / "missing"
    missing.mkdir()
    (missing / "sitecustomize.py").write_text(f"import sys; sys.modules['{package}'] = None")
    (tmp_path / "a.key").write_text("k" * 40)
    (tmp_path / "a.key").chmod(0o600)
    written(tmp_path, f"[bridge]\n{line}\n", RAW, DEVTOOLS)
    assert check(tmp_path, "--offline").returncode == 0
    # A process that is forked from another one may have the package already.
    words = [sys.executable, "-P", "-m", "bridge", "check", "--offline", str(tmp_path / "bridge.toml")]
    without = environment(tmp_path, PYTHONPATH=os.pathsep.join((str(missing), str(ROOT))))
    done = subprocess.run(
        words, env=without, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False
    )
    said = " ".join(done.stdout.split())
    assert (done.returncode, f"bridge.toml:2: bridge.{key}: " in said) == (1, True), done.stderr
    assert f"pip install 'mcp-a2a[{extra}]'" in said


def test_a_server_that_needs_a_login_is_a_fault_with_the_command(tmp_path: Path) -> None:
    (tmp_path / "bridge.toml").write_text("""
[tool_servers.crm]
url = "http://127.0.0.1:9/mcp"
auth = { oauth2 = { grant = "authorization_code" } }
[tools_as_agent.desk]
from = ["crm"]
""")
    done = run_here("check", "--json", state=tmp_path / "state", folder=tmp_path)
    assert done.returncode == 1
    (fault,) = json.loads(done.stdout)["faults"]
    assert "login needed at http://127.0.0.1:9/mcp: nobody has logged in. Run `mcp-a2a login crm`" in fault
    assert not (tmp_path / "state").exists()


def a_file(tmp_path: Path) -> str:
    (tmp_path / "tasks").write_text("no folder")
    return "store = 'tasks/of/all.db'\n"


def a_text(tmp_path: Path) -> str:
    (tmp_path / "tasks.devtools.db").write_text(
        "this was never a database, and is long enough to be looked at"
    )
    return "store = 'tasks.db'\n"


def a_folder(tmp_path: Path) -> str:
    (tmp_path / "tasks.devtools.db").mkdir()
    return "store = 'tasks.db'\n"


def a_link(tmp_path: Path) -> str:
    (tmp_path / "tasks.devtools.db").symlink_to(tmp_path / "elsewhere.db")
    return "store = 'tasks.db'\n"


def a_newer_one(tmp_path: Path) -> str:
    with closing(sqlite3.connect(tmp_path / "tasks.devtools.db")) as other:
        other.executescript(
            f"CREATE TABLE t (x); PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 99;"
        )
    return "store = 'tasks.db'\n"


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (a_file, "Not a directory"),
        (a_text, "file is not a database"),
        (a_folder, "Is a directory"),
        (a_link, "is a symbolic link"),
        (a_newer_one, "was written by a newer release (schema 99"),
    ],
)
def test_a_file_of_tasks_that_serve_could_not_open_is_a_fault_of_its_line(
    made: Callable[[Path], str], words: str, tmp_path: Path
) -> None:
    store = made(tmp_path)
    written(tmp_path, "[bridge]\n", store, RAW, DEVTOOLS)
    found = found_in(tmp_path)
    (fault,) = found["faults"]
    assert fault.startswith("bridge.store: ")
    assert words in fault
    assert found["places"] == ["bridge.toml:2"]
    served = run_here("serve", "--port", "0", state=tmp_path / "state", folder=tmp_path)
    assert served.returncode == 2
    assert words in served.stderr, "the start says the same"


def test_a_file_of_tasks_in_the_state_folder_is_checked_too(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no folder")
    written(tmp_path, RAW, DEVTOOLS)
    (fault,) = found_in(tmp_path)["faults"]
    assert fault.startswith("tools_as_agent.devtools: the store ")


def test_a_file_of_tasks_on_which_a_bridge_runs_is_no_fault(tmp_path: Path) -> None:
    path = written(tmp_path, "[bridge]\nstore = 'tasks.db'\n", RAW, DEVTOOLS)
    with started("serve", str(path), "--port", state=tmp_path / "state", until="Try it"):
        assert found_in(tmp_path)["faults"] == []


def in_database(tmp_path: Path) -> Path:
    head = "[bridge]\nstore = { env = 'DATABASE_URL' }\nkeys = [{ env = 'KEY' }]\n"
    return written(tmp_path, head, RAW, f"[tools_as_agent.{new_agent()}]\nfrom = ['raw']\n")


def test_a_database_that_is_dead_is_a_fault_of_its_line(tmp_path: Path) -> None:
    in_database(tmp_path)
    url = f"postgresql://bridge:secret@127.0.0.1:{free_port()}/tasks"
    found = found_in(tmp_path, DATABASE_URL=url, KEY="k" * 40)
    (fault,) = found["faults"]
    assert fault.startswith("bridge.store: the database cannot be reached: ")
    assert "secret" not in fault
    assert found["places"] == ["bridge.toml:2"]


def test_a_database_that_lives_is_no_fault_and_nothing_is_made_in_it(tmp_path: Path) -> None:
    path = in_database(tmp_path)
    agent = path.read_text().split("[tools_as_agent.")[1].split("]")[0]
    assert found_in(tmp_path, DATABASE_URL=database_url(), KEY="k" * 40)["faults"] == []
    with psycopg.connect(database_url()) as connection:
        made = connection.execute("SELECT to_regnamespace(%s)", (Namespace.of(agent).name,)).fetchone()
    assert made == (None,)


def test_a_role_that_may_not_make_the_tables_is_a_fault(tmp_path: Path) -> None:
    in_database(tmp_path)
    with psycopg.connect(database_url(), autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS reader")
        connection.execute("CREATE ROLE reader LOGIN")
    url = make_conninfo(database_url(), user="reader")
    uri = f"postgresql://reader@/{conninfo_to_dict(url)['dbname']}?host={conninfo_to_dict(url)['host']}"
    (fault,) = found_in(tmp_path, DATABASE_URL=uri, KEY="k" * 40)["faults"]
    assert "this role may not make or use the tables" in fault
    assert "mcp-a2a store migrate FILE" in fault


def test_equal_rights_and_equal_faults_are_merged(tmp_path: Path) -> None:
    names = ["ann", "bob", "cy", "dee", "eve", "fay", "gil"]
    people = "".join(
        f"[principals.{name}]\ngroup = 'team'\nbearer = {{ env = '{name}' }}\n" for name in names
    )
    own = "[principals.hal]\nbearer = { env = 'hal' }\nskills = ['echo', 'nothing']\n"
    mate = own.replace("hal", "ida")
    gone = "".join(
        f"[tool_servers.gone{number}]\ncommand = ['not-there-at-all']\nfail = 'open'\n" for number in range(2)
    )
    agent = "[tools_as_agent.devtools]\nfrom = ['raw', 'gone0', 'gone1']\n"
    group = "[groups.team]\nskills = ['echo', 'none-of-ours']\n"
    tokens = {name: f"{name}-token" for name in (*names, "hal", "ida")}

    written(tmp_path, RAW, DEVTOOLS, group, people, own, mate)
    found = found_in(tmp_path, **tokens)
    assert "groups.team: skills: `none-of-ours` matches nothing that is served" in found["faults"]
    shown = check(tmp_path, **tokens).stdout
    assert "  ann, bob, cy, dee, eve and 4 more may use 1 of 16: echo" in shown
    assert "principals.hal and principals.ida: skills: `nothing` matches nothing that is served" in shown
    assert shown.count("`none-of-ours`") == 1

    written(tmp_path, RAW, gone, agent)
    shown = check(tmp_path).stdout
    assert "tool_servers.gone0 and tool_servers.gone1 cannot be called: " in shown


def test_an_audit_that_serve_could_not_open_is_a_fault_of_its_line(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("no folder")
    written(tmp_path, "[audit]\nfile = 'logs/audit.jsonl'\n", RAW, DEVTOOLS)
    found = found_in(tmp_path)
    (fault,) = found["faults"]
    assert fault.startswith("audit.file: ")
    assert "Not a directory" in fault
    assert found["places"] == ["bridge.toml:2"]
    served = run_here("serve", "--port", "0", state=tmp_path / "state", folder=tmp_path)
    assert served.returncode == 2
    assert "Not a directory" in served.stderr or "File exists" in served.stderr, "the start refuses it, too"


@pytest.mark.parametrize("words", [("check",), ("check", "--json"), ("show", "--card", "devtools")])
@pytest.mark.parametrize("era", ["auto", "legacy"])
def test_show_keeps_nothing_of_the_servers_of_a_file(
    tmp_path: Path, words: tuple[str, ...], era: str
) -> None:
    state = tmp_path / "state"
    written(tmp_path, RAW.replace("legacy", era), DEVTOOLS)
    done = run_here(*words, state=state, folder=tmp_path, XDG_CACHE_HOME=str(tmp_path / "c"))
    assert done.returncode == 0, done.stderr
    kept = [one for one in tmp_path.rglob("*") if one.is_file() and one.name != "bridge.toml"]
    assert kept == []
