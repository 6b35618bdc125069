"""Agents as a Hermes configuration lists them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bridge.assembly.plan import RemotePlan
from bridge.assembly.plan_from_file import plan_from_file
from bridge.config.import_file import LeftOut
from bridge.config.known_agents import read_known_agents
from bridge.config.load import LoadedConfig, load
from bridge.config.tables.models import AgentAuth, AgentTable, Secret
from bridge.config.text.document import ValueSource
from bridge.config.toml_text import shown_values
from bridge.errors import ConfigError

TOKEN = "T0k3n-of-somebody"
ENVIRONMENT = {"RESEARCH_TOKEN": TOKEN}

HERMES = """\
# The settings of the agent itself are not the bridge's.
model: { provider: !from-vault openrouter, api_key: hunter2 }
shared: &bearer
  type: bearer
  token_env: RESEARCH_TOKEN
a2a:
  server: { port: 9443 }
  client:
    timeout: 30
    known_agents:
      - name: Research
        url: https://research.example.com
        description: Finds things.
        auth: *bearer
      - name: open one
        url: http://localhost:9001/
      - name: billing
        url: https://billing.example.com
        auth: { type: oauth2, token_url: https://id.example.com, client_secret_env: BILLING_SECRET }
"""
NO_OAUTH = (
    "it needs OAuth 2, and such a file does not name the issuer: write an [agents] table of this name with"
    " `auth.oauth2`"
)


def loaded(folder: Path, *tables: str, hermes: str = HERMES, **environment: str) -> LoadedConfig:
    (folder / "hosts").mkdir(exist_ok=True)
    (folder / "hosts" / "hermes_config.yaml").write_text(hermes, encoding="utf-8")
    file = folder / "bridge.toml"
    file.write_text("".join(["[import]\nknown_agents = 'hosts/hermes_config.yaml'\n", *tables]))
    return load(file, environment or ENVIRONMENT)


def team(*names: str) -> str:
    return f"[agents_as_tools.team]\nfrom = {list(names)}\n"


def one_agent(folder: Path, entry: str, **environment: str) -> AgentTable:
    """The agent `a` of a list with this entry alone."""
    text = f"a2a: {{ client: {{ known_agents: [{entry}] }} }}\n"
    return loaded(folder, team("a"), hermes=text, **environment).config.agents["a"]


def refusal_of(folder: Path, *tables: str, hermes: str) -> ConfigError:
    with pytest.raises(ConfigError) as refused:
        loaded(folder, *tables, hermes=hermes)
    return refused.value


def test_the_known_agents_of_a_hermes_configuration_are_agents_that_speak_its_dialect(tmp_path: Path) -> None:
    assert loaded(tmp_path, team("research", "open-one")).config.agents == {
        "research": AgentTable(
            card="https://research.example.com",
            dialect="hermes",
            auth=AgentAuth(bearer=Secret(TOKEN, "env:RESEARCH_TOKEN")),
        ),
        "open-one": AgentTable(card="http://localhost:9001/", dialect="hermes"),
    }


def test_a_known_agent_is_planned_like_a_configured_agent(tmp_path: Path) -> None:
    plan = plan_from_file(loaded(tmp_path, team("research")))
    assert plan.agents["research"] == RemotePlan(
        "https://research.example.com", bearer=TOKEN, account="", dialect="hermes"
    )
    assert plan.offered["team"].sources == ("research",)


def test_the_file_of_known_agents_is_watched_and_its_lines_are_known(tmp_path: Path) -> None:
    found = loaded(tmp_path, team("research"))
    place = tmp_path / "hosts" / "hermes_config.yaml"
    assert place in found.files
    assert found.sources.of(("agents", "research", "card")) == ValueSource("file", f"{place}:11")
    assert found.place_of(("agents", "billing")) == f"{place}:17"


def test_a_token_of_a_known_agent_is_shown_by_its_variable(tmp_path: Path) -> None:
    found = loaded(tmp_path, team("research"))
    shown = {one.path: one.value for one in shown_values(found)}
    assert shown["agents.research.auth"] == '{ bearer = { env = "RESEARCH_TOKEN" } }'
    assert TOKEN not in repr(found)


@pytest.mark.parametrize(
    ("entry", "token"),
    [
        ("{ name: a, url: https://a.example, auth: { type: Bearer, token_env: T } }", TOKEN),
        ("{ name: a, url: https://a.example, auth: { token_env: T } }", TOKEN),
        ("{ name: a, url: https://a.example, auth: bearer, token_env: T }", TOKEN),
        ("{ name: a, url: https://a.example, token_env: T }", TOKEN),
        ("{ name: a, url: https://a.example, auth: { type: none, token_env: T } }", None),
        ("{ name: a, url: https://a.example, auth: null }", None),
        ("{ <<: { url: https://b.example, token_env: T }, name: a, url: https://a.example }", TOKEN),
    ],
)
def test_a_bearer_token_is_named_by_its_variable(entry: str, token: str | None, tmp_path: Path) -> None:
    auth = AgentAuth(bearer=Secret(token, "env:T")) if token else None
    agent = one_agent(tmp_path, entry, T=TOKEN)
    assert (agent.card, agent.auth) == ("https://a.example", auth)


def test_an_agent_that_wants_oauth_2_is_left_out_and_the_rest_is_served(tmp_path: Path) -> None:
    found = loaded(tmp_path, team("research", "billing"))
    place = f"{tmp_path / 'hosts' / 'hermes_config.yaml'}:17"
    left_out = {"billing": LeftOut(NO_OAUTH, place, ("a2a", "client", "known_agents", 2))}
    plan = plan_from_file(found)
    assert (found.left_out, plan.left_out) == (left_out, left_out)
    assert "billing" not in plan.agents
    assert plan.offered["team"].sources == ("research",)


def test_a_configured_agent_replaces_an_agent_that_is_left_out(tmp_path: Path) -> None:
    own = "[agents.billing]\ncard = 'https://billing.example.com'\nauth.bearer.env = 'RESEARCH_TOKEN'\n"
    found = loaded(tmp_path, own, team("research", "billing"))
    assert found.left_out == {}
    assert found.config.agents_as_tools["team"].sources == ("research", "billing")


def test_a_server_made_only_of_agents_that_are_left_out_is_refused(tmp_path: Path) -> None:
    refused = refusal_of(tmp_path, team("billing"), hermes=HERMES)
    assert [(one.line, one.message) for one in refused.diagnostics] == [
        (17, f"[agents_as_tools.team] has only agents that the bridge does not support: {NO_OAUTH}")
    ]


def test_a_fault_of_a_known_agent_matters_once_a_server_is_made_of_it(tmp_path: Path) -> None:
    hermes = HERMES.replace("https://research", "research")
    assert "research" not in loaded(tmp_path, team("open-one"), hermes=hermes).config.agents
    refused = refusal_of(tmp_path, team("open-one", "research"), hermes=hermes)
    assert [(one.line, one.message) for one in refused.diagnostics] == [
        (12, "`url` takes a URL that begins with http:// or https:// and names a host")
    ]


def test_an_unknown_name_is_told_from_those_of_the_known_agents(tmp_path: Path) -> None:
    (one,) = refusal_of(tmp_path, team("reserch"), hermes=HERMES).diagnostics
    assert one.hint == "did you mean `research`?"


def test_two_agents_of_one_name_are_refused(tmp_path: Path) -> None:
    own = "[agents.research]\ncard = 'https://other.example.com'\n"
    (one,) = refusal_of(tmp_path, own, team("research"), hermes=HERMES).diagnostics
    assert (one.message, one.line) == ("there is another agent `research`", 11)
    assert one.hint == f"rename this entry, or the entry at {tmp_path / 'bridge.toml'}:3"


def test_known_agents_may_be_in_several_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        text = f"a2a: {{client: {{known_agents: [{{name: {name}, url: 'https://{name}.example'}}]}}}}"
        (tmp_path / f"{name}.yaml").write_text(text)
    file = tmp_path / "bridge.toml"
    file.write_text(f"[import]\nknown_agents = ['a.yaml', 'b.yaml']\n{team('a', 'b')}")
    assert list(load(file, {}).config.agents) == ["a", "b"]


ALIASES = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 12))
TAIL = "a2a: { client: { known_agents: [] } }\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"l0: &l0 lol\n{ALIASES}{TAIL}", "more than 50,000 values, counting the values of aliases"),
        (
            f"l0: &l0 {{ a: b }}\n{ALIASES.replace('[', '{ <<: [').replace(']', '] }')}{TAIL}",
            "more than 50,000",
        ),
        (f"a: &a [*a]\n{TAIL}", "an alias stands inside its own value"),
        (f"a: {'[' * 60}{']' * 60}\n{TAIL}", "nested more than 50 levels deep"),
        (f"a: &a {'[' * 30}{']' * 30}\nb: {'[' * 30}*a{']' * 30}\n{TAIL}", "nested more than 50 levels deep"),
        (f"a: {'x' * 300_000}\n{TAIL}", "it is larger than 262,144 bytes, the most that is read"),
        (f"a: 1\n---\n{TAIL}", "found another document"),
        ("a2a: *hunter2", "this is not valid YAML: found undefined alias"),
        ("a2a:\n  api_key: hunter2\n bad: [hunter2", "this is not valid YAML: while parsing a block mapping"),
        ("a2a: \0", "it holds a character that YAML does not allow"),
        ("", "it holds no `a2a.client.known_agents`, a list of agents, each with `name` and `url`"),
        ("a2a: { client: { known_agents: { a: hunter2 } } }", "`known_agents` takes a list of agents"),
        ("a2a: { client: { known_agents: [hunter2] } }", "`known_agents` takes a list of agents"),
        (
            "a2a: { client: { known_agents: [{ url: 'https://a.example/?hunter2' }] } }",
            "an agent needs a `name`",
        ),
        (
            "a2a: { client: { known_agents: [{ name: a, url: !env hunter2 }] } }",
            "a custom tag is not supported",
        ),
    ],
)
def test_a_file_that_is_no_list_of_agents_or_out_of_bounds_is_refused(
    text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_known_agents(tmp_path / "a.yaml", {})
    (one,) = refused.value.diagnostics
    assert message in one.message
    assert "hunter2" not in str(refused.value)


def test_a_python_object_in_a_file_is_never_constructed(tmp_path: Path) -> None:
    trace, file = tmp_path / "trace", tmp_path / "a.yaml"
    file.write_text(f"x: !!python/object/apply:os.mkdir ['{trace}']\n{TAIL}")
    assert read_known_agents(file, {}).names == frozenset()
    assert not trace.exists()


def test_comments_and_values_that_may_be_secret_are_masked(tmp_path: Path) -> None:
    entry = "{ name: a, url: 'https://u:hunter2@a.example', auth: { token: hunter2 } }"
    text = f"a2a: {{ client: {{ known_agents: [{entry}] }} }}  # hunter2\n"
    said = str(refusal_of(tmp_path, team("a"), hermes=text))
    assert "`auth` of `a` needs `token_env`" in said
    assert "hunter2" not in said


def test_without_its_extra_a_yaml_file_is_refused_with_how_to_install_it(tmp_path: Path) -> None:
    loaded(tmp_path, team("research"))
    code = (
        "import sys; sys.modules['yaml'] = None; from pathlib import Path; from bridge.config.load import load; "
        f"load(Path({str(tmp_path / 'bridge.toml')!r}), {{}})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "error: reading a YAML file needs PyYAML, which is not installed" in done.stderr
    assert "2 | known_agents = 'hosts/hermes_config.yaml'" in done.stderr
    assert "help: pip install 'mcp-a2a[yaml]'" in done.stderr
    assert done.stderr.rstrip().endswith(f"1 error in {tmp_path / 'bridge.toml'}")
