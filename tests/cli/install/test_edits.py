"""`mcp-a2a install` with a server that is already installed: add agents, remove agents, replace the server."""

from __future__ import annotations

import json

from tests.cli.install.test_command import Machine, agent, machine, pytestmark
from tests.cli.install.test_dialog import TOKEN, locked
from tests.support.certificates import Authority
from tests.support.files import written

__all__ = ["agent", "locked", "machine", "pytestmark"]

ONE, TWO, THREE = (f"https://x.example/agents/{name}" for name in ("one", "two", "three"))


def urls(machine: Machine, host: str = "cursor", key: str = "mcpServers") -> dict[str, list[str]]:
    """The arguments after `expose` of each server in the host's file."""
    servers = json.loads(machine.file(host).read_text())[key]
    return {name: server.get("args", [])[1:] for name, server in servers.items()}


def test_the_url_of_a_card_names_its_agent(machine: Machine) -> None:
    for card in (f"{ONE}/.well-known/agent-card.json", f"{ONE}/.well-known/agent.json"):
        assert machine.install("cursor", card).returncode == 0
        assert urls(machine) == {"one": [ONE]}
    assert "It replaces another" not in machine.install("cursor", f"{ONE}/").stderr
    assert machine.install("cursor", "--remove", f"{ONE}/.well-known/agent.json").returncode == 0
    assert urls(machine) == {}


def test_a_server_is_removed_by_its_name(machine: Machine) -> None:
    machine.install("cursor", ONE, "--name", "mine")
    done = machine.install("cursor", "--remove", "other")
    assert (done.returncode, urls(machine)) == (0, {"mine": [ONE]})
    assert "other is not in" in done.stderr
    assert "(servers of mcp-a2a: mine)" in done.stderr
    done = machine.install("cursor", "--remove", "mine")
    assert "mine is no longer in" in done.stderr
    assert urls(machine) == {}


def test_of_several_agents_the_named_one_is_removed(machine: Machine) -> None:
    machine.install("cursor", "--trust", "https://y.example", ONE, TWO, THREE, "--name", "team")
    done = machine.install("cursor", "--remove", f"{TWO}/")
    assert urls(machine) == {"team": ["--trust", "https://y.example", ONE, THREE]}
    assert f"no longer offers {TWO}" in done.stderr
    assert f"still offers {ONE} {THREE}" in done.stderr
    dry = machine.install("cursor", "--remove", ONE, "--dry-run")
    assert f'-        "{ONE}",' in dry.stdout.splitlines()
    done = machine.install("cursor", "--remove", THREE, ONE)
    assert "team is no longer in" in done.stderr
    assert urls(machine) == {}


def test_an_agent_of_two_servers_is_removed_from_the_named_one(machine: Machine) -> None:
    machine.install("cursor", ONE, TWO, "--name", "a")
    machine.install("cursor", ONE, THREE, "--name", "b")
    before = urls(machine)
    done = machine.install("cursor", "--remove", ONE)
    assert done.returncode == 2
    assert "has it as a, b: name one with --name" in done.stderr
    assert urls(machine) == before
    assert machine.install("cursor", "--remove", ONE, "--name", "b").returncode == 0
    assert urls(machine) == {"a": [ONE, TWO], "b": [THREE]}
    done = machine.install("cursor", "--remove", TWO, THREE, "https://z.example")
    assert urls(machine) == {"a": [ONE]}
    assert "nothing in" in done.stderr
    assert "offers https://z.example: nothing to change" in done.stderr


def test_a_missing_server_or_file_can_be_removed(machine: Machine) -> None:
    """The configuration file, its MCP server, the host's file or the host may be missing."""
    agents = "[agents.x]\ncard = 'https://x.example'\n"
    file = written(
        machine.project, agents, "[agents_as_tools.team]\nfrom = ['x']\n[agents_as_tools.all]\nfrom = ['x']\n"
    )
    for face in ("team", "all"):
        assert machine.install("cursor", "bridge.toml", "--face", face).returncode == 0
    file.unlink()
    done = machine.install("cursor", "--remove", "bridge.toml")
    assert done.returncode == 2
    assert "team (--face team), all (--face all)" in done.stderr
    assert machine.install("cursor", "--remove", "bridge.toml", "--face", "all").returncode == 0
    assert machine.install("cursor", "--remove", "bridge.toml").returncode == 0
    assert urls(machine) == {}
    assert "nothing in" in machine.install("cursor", "--remove", "bridge.toml").stderr
    for words in (("cursor",), ("zed",), ("vscode", "--scope", "project"), ("cursor", "--file", "none.json")):
        machine.file("cursor").unlink(missing_ok=True)
        done = machine.install(*words, "--remove", ONE)
        assert (done.returncode, "nothing to change" in done.stderr) == (0, True)
        assert not machine.file("cursor").exists()


def test_replacing_an_entry_is_reported(machine: Machine) -> None:
    machine.install("cursor", "--header", "X-Team=blue", ONE, TWO, "--name", "team")
    done = machine.install("cursor", TWO, "--name", "team")
    assert f"It replaces another team, and no longer offers {ONE}" in done.stderr
    assert f"started with: expose --header X-Team=blue {ONE} {TWO}" in done.stderr
    assert "It replaces another" in machine.install("cursor", "--granularity", "agent", TWO).stderr
    again = machine.install("cursor", "--granularity", "agent", TWO).stderr
    assert ("already in" in again, "It replaces another" in again) == (True, False)


def test_agents_are_added_to_a_server(machine: Machine) -> None:
    done = machine.install("cursor", "--add", ONE)
    assert (done.returncode, "has no server of agents to add to" in done.stderr) == (2, True)
    machine.install("cursor", "--trust", "https://y.example", ONE, "--name", "team")
    done = machine.install("cursor", "--add", TWO, f"{ONE}/", f"{THREE}/.well-known/agent-card.json")
    assert f"team in {machine.file('cursor')} now also offers {TWO} {THREE}" in done.stderr
    assert urls(machine) == {"team": ["--trust", "https://y.example", ONE, TWO, THREE]}
    done = machine.install("cursor", "--add", TWO)
    assert (done.returncode, "already: nothing to change" in done.stderr) == (0, True)


def test_it_is_clear_to_which_server_agents_are_added(machine: Machine) -> None:
    machine.file("cursor").write_text('{"mcpServers": {"other": {"command": "npx"}}}')
    for name, url in (("a", ONE), ("b", TWO)):
        machine.install("cursor", url, "--name", name)
    for words, said in (
        ((), "has a, b: name one with --name"),
        (("--name", "c"), "c is not in"),
        (("--name", "other"), "is a server of another kind"),
        (("--remove",), "opposites"),
    ):
        done = machine.install("cursor", "--add", THREE, *words)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert machine.install("cursor", "--add", THREE, "--name", "b").returncode == 0
    assert urls(machine)["b"] == [TWO, THREE]


def test_no_agent_gets_the_secrets_of_others_by_being_added(machine: Machine) -> None:
    for name in ("token", "other"):
        (machine.project / name).write_text("s3cret")
    machine.install("cursor", "--bearer", "file:token", ONE)
    for words, said in (
        ((), f"has --bearer file:{machine.project}/token, and would send it to the new agent, too"),
        (("--bearer", "file:other"), "was installed without --bearer, or with another value"),
        (("--bearer", "file:token", "--dialect", "0.3"), "was installed without --dialect"),
        (("--bearer", "file:token", "--allow-private"), "was installed without --allow-private"),
    ):
        done = machine.install("cursor", "--add", TWO, *words)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert machine.install("cursor", "--add", TWO, "--bearer", "file:token").returncode == 0
    assert urls(machine)["one"][-2:] == [ONE, TWO]


def test_an_entry_with_a_url_as_an_option_value_is_recognized(machine: Machine) -> None:
    machine.install("cursor", "--trust", "https://y.example", ONE)
    again = machine.install("cursor", "--trust", "https://y.example", ONE)
    assert (again.returncode, "already in" in again.stderr) == (0, True)
    assert machine.install("cursor", "--list").stdout.splitlines()[-1] == f"  one  {ONE}"


def test_an_odd_entry_does_not_hide_other_entries(machine: Machine) -> None:
    odd = {"command": "/x/mcp-a2a", "args": ["expose", "http://["]}
    others = {"odd": odd, "none": {"command": "mcp-a2a"}, "text": "x", "list": {"command": 3, "args": {}}}
    machine.file("cursor").write_text(json.dumps({"mcpServers": others}))
    assert machine.install("cursor", ONE).returncode == 0
    assert machine.install("cursor", "--add", TWO, "--name", "one").returncode == 0
    assert machine.install("cursor", "--remove", ONE).returncode == 0
    assert machine.install("cursor", "--remove", TWO, "--name", "one").returncode == 0
    done = machine.install("cursor", "http://[")
    assert (done.returncode, "is not a URL" in done.stderr) == (2, True), done.stderr
    assert machine.install("cursor", "--remove", "odd").returncode == 0
    del others["odd"]
    assert json.loads(machine.file("cursor").read_text()) == {"mcpServers": others}


def test_certificates_are_passed_on_by_their_files(machine: Machine) -> None:
    authority = Authority(machine.project)
    issued = authority.issues("bridge")
    options = ("--cert", issued.certificate.name, "--key", issued.key.name, "--ca", authority.file.name)
    done = machine.install("zed", *options, ONE)
    assert done.returncode == 0, done.stderr
    paths = [word if word.startswith("--") else str(machine.project / word) for word in options]
    assert urls(machine, "zed", "context_servers") == {"one": [*paths, ONE]}
    alone = machine.install("zed", *options[:2], TWO)
    assert (alone.returncode, "--cert and --key go together" in alone.stderr) == (2, True)
    gone = machine.install("zed", "--ca", "gone.pem", TWO)
    assert (gone.returncode, "gone.pem" in gone.stderr) == (2, True)


def test_check_tries_a_token_by_a_call_that_changes_nothing(locked: str, machine: Machine) -> None:
    (machine.project / "good").write_text(TOKEN)
    (machine.project / "bad").write_text("wrong")
    done = machine.install("cursor", "--check", "--bearer", "file:bad", locked)
    assert (done.returncode, done.stdout) == (1, "")
    assert "It refuses the token: check what --bearer names" in done.stderr
    assert "Nothing was written" in done.stderr
    assert not machine.file("cursor").exists()
    assert machine.install("cursor", "--check", "--bearer", "file:good", locked).returncode == 0


def test_the_token_of_a_removed_server_is_named(machine: Machine) -> None:
    folder = machine.home / "state" / "mcp-a2a" / "tokens"
    folder.mkdir(parents=True)
    (folder / "one").write_text("s3cret")
    machine.install("cursor", "--bearer", f"file:{folder}/one", ONE)
    done = machine.install("cursor", "--remove", ONE)
    assert (
        f"Its token is still in {folder}/one: delete that file, unless another server uses it" in done.stderr
    )


def test_what_the_host_asks_for_a_removed_server_goes_with_it(machine: Machine) -> None:
    asked = [{"id": "other"}, {"id": "one-token", "type": "promptString"}]
    value = "${input:one-token}"
    entry = {"command": "/x/mcp-a2a", "args": ["expose", "--bearer", "env:T", ONE], "env": {"T": value}}
    document = {"inputs": asked, "servers": {"one": entry, "too": entry}}
    machine.file("vscode").write_text(json.dumps(document, indent=2))
    machine.install("vscode", "--remove", "too")
    assert json.loads(machine.file("vscode").read_text()) == {"inputs": asked, "servers": {"one": entry}}
    machine.install("vscode", "--remove", "one")
    assert json.loads(machine.file("vscode").read_text()) == {"inputs": asked[:1], "servers": {}}
