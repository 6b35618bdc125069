"""`mcp-a2a init --from-registry`, with a registry on loopback that answers as the published API says."""

from __future__ import annotations

import hashlib
import json
import subprocess
import threading
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import rfc8785

from bridge.config.registry_entry import EntryChoice, EntryQuestion, entry_from, proposed
from bridge.errors import PeerError, UsageError
from tests.cli.config.test_init import answered
from tests.support.command import run_here

Json = dict[str, Any]

NAME = "io.github.owner/weather"
OFFICIAL = "io.modelcontextprotocol.registry/official"
STDIO = {"type": "stdio"}
NPM: Json = {"registryType": "npm", "identifier": "@owner/weather", "version": "1.2.3", "transport": STDIO}
PYPI: Json = {"registryType": "pypi", "identifier": "owner-weather", "version": "1.2.3", "transport": STDIO}
OCI: Json = {"registryType": "oci", "identifier": "ghcr.io/owner/weather:1.2.3", "transport": STDIO}
BUNDLE: Json = {
    "registryType": "mcpb",
    "identifier": "https://github.com/owner/weather/releases/download/v1/weather.mcpb",
    "fileSha256": "a" * 64,
    "transport": STDIO,
}
REMOTE: Json = {"type": "streamable-http", "url": "https://weather.example.com/mcp"}
KEY: Json = {"name": "WEATHER_KEY", "isSecret": True, "isRequired": True}


def entry(*packages: Json, remotes: tuple[Json, ...] = (), status: str = "active", **more: Any) -> Json:
    """The answer of a registry about one version of a server."""
    server = {"name": NAME, "version": "1.2.3", "description": "The weather", **more}
    if packages:
        server["packages"] = list(packages)
    if remotes:
        server["remotes"] = list(remotes)
    return {"server": server, "_meta": {OFFICIAL: {"status": status, "isLatest": True}}}


@dataclass
class Registry:
    """A registry on loopback."""

    url: str = ""
    answers: dict[str, Json] = field(default_factory=dict)
    """By path."""
    asked: list[str] = field(default_factory=list)

    def holds(self, answer: Json, version: str = "latest", api: str = "v0.1") -> None:
        self.answers[f"/{api}/servers/io.github.owner%2Fweather/versions/{version}"] = answer


@pytest.fixture
def registry() -> Iterator[Registry]:
    held = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            held.asked.append(self.path)
            answer = held.answers.get(self.path)
            body = json.dumps(answer or {"error": "Server not found"}).encode()
            self.send_response(200 if answer else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Stay silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        held.url = f"http://127.0.0.1:{server.server_port}"
        yield held
        server.shutdown()
        serving.join()


def init(registry: Registry, folder: Path, *words: str, name: str = NAME) -> subprocess.CompletedProcess[str]:
    command = ("init", "--from-registry", name, "--registry", registry.url, *words)
    return run_here(*command, state=folder / "state", folder=folder)


def written(folder: Path, file: str = "bridge.toml") -> Json:
    return tomllib.loads((folder / file).read_text(encoding="utf-8"))


def test_an_entry_becomes_an_exact_version_with_its_secrets_by_reference(
    registry: Registry, tmp_path: Path
) -> None:
    answer = entry({**NPM, "environmentVariables": [KEY, {"name": "UNITS", "default": "metric"}]})
    registry.holds(answer)
    done = init(registry, tmp_path, "--yes")
    assert done.returncode == 0, done.stderr
    assert written(tmp_path)["tool_servers"] == {
        "weather": {
            "command": ["npx", "-y", "@owner/weather@1.2.3"],
            "env": {"UNITS": "metric", "WEATHER_KEY": {"env": "WEATHER_KEY"}},
        }
    }
    digest = hashlib.sha256(rfc8785.dumps(answer["server"])).hexdigest()
    assert f"# {NAME} 1.2.3 of 127.0.0.1" in (tmp_path / "bridge.toml").read_text()
    assert (
        f"entry sha256:{digest}; the entry has no digest of the package.\n"
        in (tmp_path / "bridge.toml").read_text()
    )
    assert "command: npx -y @owner/weather@1.2.3" in done.stderr
    assert "WEATHER_KEY is a secret: set this variable" in done.stderr
    checked = run_here("check", "--offline", state=tmp_path / "state", folder=tmp_path, WEATHER_KEY="k")
    assert checked.returncode == 0, checked.stderr


def test_nothing_is_written_without_a_yes(registry: Registry, tmp_path: Path) -> None:
    registry.holds(entry(NPM))
    done = init(registry, tmp_path)
    assert done.returncode == 2
    assert "npx -y @owner/weather@1.2.3" in done.stderr, "what would run is shown first"
    assert "nobody confirmed this: add --yes" in done.stderr
    assert not (tmp_path / "bridge.toml").exists()


def test_at_a_terminal_it_asks_for_what_is_open_and_for_a_yes(registry: Registry, tmp_path: Path) -> None:
    path = {"type": "positional", "valueHint": "folder", "isRequired": True}
    registry.holds(entry({**PYPI, "packageArguments": [path]}))
    words = ["--from-registry", NAME, "--registry", registry.url]
    assert answered(tmp_path, "/srv\n", "\n", words=words) == 2
    assert not (tmp_path / "bridge.toml").exists(), "Enter is a no"
    assert answered(tmp_path, "/srv\n", "y\n", words=words) == 0
    command = written(tmp_path)["tool_servers"]["weather"]["command"]
    assert command == ["uvx", "owner-weather==1.2.3", "/srv"]


def test_a_file_that_exists_gets_the_server_at_its_end(registry: Registry, tmp_path: Path) -> None:
    registry.holds(entry(PYPI), version="1.2.3")
    before = '[tool_servers.one]\ncommand = ["one"]\n\n[tools_as_agent.one]\nfrom = ["one"]  # mine\n'
    (tmp_path / "bridge.toml").write_text(before)
    done = init(registry, tmp_path, "--yes", name=f"{NAME}@1.2.3")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "bridge.toml").read_text().startswith(before)
    assert written(tmp_path)["tool_servers"]["weather"] == {"command": ["uvx", "owner-weather==1.2.3"]}
    assert written(tmp_path)["tools_as_agent"]["weather"] == {"from": ["weather"]}
    again = init(registry, tmp_path, "--yes", name=f"{NAME}@1.2.3")
    assert again.returncode == 2
    assert "has [tool_servers.weather] already" in again.stderr


def test_a_registry_with_the_older_api_is_asked_there(registry: Registry, tmp_path: Path) -> None:
    registry.holds(entry(NPM), api="v0")
    assert init(registry, tmp_path, "--yes").returncode == 0
    tail = "/servers/io.github.owner%2Fweather/versions/latest"
    assert registry.asked == [f"/v0.1{tail}", f"/v0{tail}"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "has no io.github.owner/weather"),
        (entry(NPM, name="io.github.owner/other"), "answered with io.github.owner/other in place of"),
        (entry(NPM, status="deleted"), "was deleted"),
        ({"server": {"name": NAME}}, "is no entry of a server: version"),
        (entry(BUNDLE), "can use none of its 1 package or remote server"),
        (entry({**NPM, "transport": {**REMOTE}}), "it serves HTTP by itself"),
    ],
)
def test_what_cannot_be_used_is_refused_and_nothing_is_written(
    registry: Registry, tmp_path: Path, answer: Json | None, words: str
) -> None:
    if answer is not None:
        registry.holds(answer)
    done = init(registry, tmp_path, "--yes")
    assert done.returncode != 0
    assert words in done.stderr
    assert not (tmp_path / "bridge.toml").exists()


def test_another_package_of_the_entry_is_picked_by_its_number(registry: Registry, tmp_path: Path) -> None:
    registry.holds(entry(BUNDLE, NPM, remotes=(REMOTE,)))
    assert init(registry, tmp_path, "--yes", "--pick", "3").returncode == 0
    assert written(tmp_path)["tool_servers"]["weather"] == {"url": "https://weather.example.com/mcp"}
    refused = init(registry, tmp_path, "--yes", "--pick", "1", "other.toml")
    assert (
        "an MCP bundle is for hosts: unpack the file (a zip), and name the command of its manifest.json"
        in refused.stderr
    )


def test_the_options_belong_to_a_registry(tmp_path: Path) -> None:
    for option in (["--yes"], ["--pick", "1"], ["--input", "a=b"], ["--registry", "https://r.example"]):
        done = run_here("init", *option, state=tmp_path / "state", folder=tmp_path)
        assert done.returncode == 2
        assert f"{option[0]} is for --from-registry" in done.stderr


# What an entry becomes


def choices(*packages: Json, remotes: tuple[Json, ...] = ()) -> tuple[EntryChoice, ...]:
    return entry_from(entry(*packages, remotes=remotes), NAME).choices


def keys(package: Json, **answers: str) -> Json:
    (choice,) = choices(package) if "registryType" in package else choices(remotes=(package,))
    assert not choice.obstacle

    def ask(question: EntryQuestion) -> list[str]:
        given = answers.get(question.key, question.default)
        return [] if given is None else [given]

    return dict(proposed(choice, ask).keys)


ARGUMENTS = [
    {"type": "positional", "valueHint": "folder", "isRequired": True, "format": "filepath"},
    {"type": "named", "name": "--units", "default": "metric", "choices": ["metric", "us"]},
    {"type": "named", "name": "--verbose", "format": "boolean", "value": "true"},
    {"type": "named", "name": "--log", "value": "{level}:x", "variables": {"level": {"default": "info"}}},
    {"type": "named", "name": "--left-out"},
]


def test_arguments_take_fixed_values_answers_and_defaults() -> None:
    package = {**PYPI, "packageArguments": ARGUMENTS}
    command = keys(package, folder="/srv; rm -rf /")["command"]
    assert command == [
        "uvx",
        "owner-weather==1.2.3",
        *("/srv; rm -rf /", "--units", "metric", "--verbose", "--log", "info:x"),
    ]


def test_a_required_value_and_a_choice_are_checked() -> None:
    package = {**PYPI, "packageArguments": ARGUMENTS}
    with pytest.raises(UsageError, match="folder needs a value"):
        keys(package)
    with pytest.raises(UsageError, match="--units is one of metric, us, not odd"):
        keys(package, folder="/srv", **{"--units": "odd"})


def test_a_container_gets_its_variables_by_name() -> None:
    package = {
        **OCI,
        "environmentVariables": [KEY],
        "runtimeArguments": [{"type": "named", "name": "--user", "value": "1"}],
    }
    assert keys(package) == {
        "command": ["docker", "run", "-i", "--rm", "-e", "WEATHER_KEY", "--user", "1", OCI["identifier"]],
        "env": {"WEATHER_KEY": {"env": "WEATHER_KEY"}},
    }


def test_a_remote_server_gets_its_headers_and_its_token_by_reference() -> None:
    bearer = {"name": "Authorization", "value": "Bearer {token}", "isSecret": True}
    remote = {
        "type": "sse",
        "url": "https://{region}.example.com/sse",
        "variables": {"region": {"default": "eu"}},
        "headers": [bearer, {"name": "X-Api-Key"}, {"name": "X-Plan", "value": "free"}],
    }
    assert keys(remote) == {
        "url": "https://eu.example.com/sse",
        "transport": "sse",
        "auth": {"bearer": {"env": "AUTHORIZATION"}},
        "headers": {"X-Plan": "free", "X-Api-Key": {"env": "X_API_KEY"}},
    }


@pytest.mark.parametrize(
    ("change", "obstacle"),
    [
        ({"version": "latest"}, "no exact version"),
        ({"version": "^1.2.3"}, "no exact version"),
        ({"version": ""}, "no exact version"),
        ({"identifier": "--eval"}, "not the name of a package"),
        ({"identifier": "git+https://x.example/a"}, "not the name of a package"),
        (
            {"runtimeHint": "bash", "runtimeArguments": [{"type": "positional", "value": "-c"}]},
            "are for bash",
        ),
        ({"packageArguments": [{"type": "named", "name": "--key", "isSecret": True}]}, "--key is a secret"),
        ({"registryType": "nuget"}, "starts packages of npm, pypi, oci"),
        ({"registryType": "oci", "identifier": "owner/weather"}, "neither a tag nor a digest"),
    ],
)
def test_a_package_that_is_not_exact_or_not_safe_has_an_obstacle(change: Json, obstacle: str) -> None:
    (choice,) = choices({**NPM, **change})
    assert obstacle in choice.obstacle


def test_a_person_reads_where_an_entry_expects_its_package() -> None:
    (choice,) = choices({**NPM, "registryBaseUrl": "https://npm.example.com"})
    assert not choice.obstacle
    assert "of https://npm.example.com (npx asks the registry that it is configured for)" in choice.words


@pytest.mark.parametrize(
    ("package", "digest"),
    [
        ({**NPM, "fileSha256": "b" * 64}, f"package sha256:{'b' * 64}"),
        ({**OCI, "identifier": f"ghcr.io/o/w@sha256:{'c' * 64}"}, f"image sha256:{'c' * 64}"),
        (OCI, "the entry has no digest of the package"),
    ],
)
def test_the_digest_of_what_runs_is_told(package: Json, digest: str) -> None:
    (choice,) = choices(package)
    assert proposed(choice, lambda _: []).digest == digest


def test_a_variable_with_an_odd_name_is_refused() -> None:
    with pytest.raises(UsageError, match="variable or header with the name"):
        keys({**NPM, "environmentVariables": [{"name": "A B", "value": "1"}]})


def test_an_answer_that_is_no_object_is_refused() -> None:
    with pytest.raises(PeerError, match="no entry of a server"):
        entry_from([], NAME)
