"""promtool takes the files of examples/operate, and the rules do what their unit tests say."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.operate.asked import OPERATE, RULES, alerts
from tests.operate.installed import NotInstalledError, programs
from tests.operate.prometheus import programs_or_skip
from tests.support.command import ROOT
from tests.support.lines import Lines
from tests.support.pages import blocks_of, typed_in
from tests.support.ports import free_port

PAGE: Final = ROOT / "docs" / "observability.md"
SECONDS: Final = 120


def promtool(*words: str, folder: Path = OPERATE) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    command = [programs_or_skip().promtool, *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)


def test_prometheus_takes_the_configuration_and_the_rules() -> None:
    done = promtool("check", "config", "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len([*alerts()])} rules found" in done.stdout


def test_each_alert_fires_where_it_should_and_not_where_all_is_well() -> None:
    done = promtool("test", "rules", "alerts_test.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_the_configuration_of_the_page(tmp_path: Path) -> None:
    (block,) = (one for one in blocks_of(PAGE) if one.language == "yaml")
    (tmp_path / "prometheus.yml").write_text(block.text)
    (tmp_path / "alerts.yaml").write_text((OPERATE / "alerts.yaml").read_text())
    done = promtool("check", "config", "prometheus.yml", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_what_is_typed_on_the_page_does_what_it_says(tmp_path: Path) -> None:
    folder = tmp_path / "operate"
    shutil.copytree(OPERATE, folder)
    found, port = programs_or_skip(), free_port()
    typed = [one for block in blocks_of(PAGE) if block.language == "console" for one in typed_in(block)]
    assert len(typed) == 3
    for one in typed:
        program, *words = shlex.split(one.line.replace(":9090", f":{port}"))
        if program == "promtool":
            done = promtool(*words, folder=folder)
            assert done.returncode == 0, done.stdout + done.stderr
            assert all(said in done.stdout for said in one.says)
        else:
            command = [found.prometheus, *words]
            with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE) as process:
                try:
                    Lines(process, process.stderr).until("Server is ready to receive web requests")
                finally:
                    process.kill()


@pytest.mark.long
@pytest.mark.parametrize("change", [{"expr": "vector(1)"}, {"expr": "vector(0) > 1"}, {"for": "3h"}], ids=str)
@pytest.mark.parametrize("number", range(len([*alerts()])), ids=lambda number: [*alerts()][number].where)
def test_the_unit_tests_see_a_rule_that_is_wrong(number: int, change: dict[str, str], tmp_path: Path) -> None:
    (group,) = RULES["groups"]
    rules = [rule | (change if at == number else {}) for at, rule in enumerate(group["rules"])]
    (tmp_path / "alerts.yaml").write_text(yaml.safe_dump({"groups": [{**group, "rules": rules}]}))
    (tmp_path / "alerts_test.yaml").write_text((OPERATE / "alerts_test.yaml").read_text())
    assert promtool("test", "rules", "alerts_test.yaml", folder=tmp_path).returncode == 1


@pytest.mark.skipif(sys.platform == "win32", reason="a program is made as on other systems")
def test_where_there_is_no_prometheus_it_is_said_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PROMETHEUS_PROGRAMS", str(tmp_path))
    with pytest.raises(NotInstalledError, match=f"prometheus and promtool: not in {tmp_path}"):
        programs()
    for name in ("prometheus", "promtool"):
        (tmp_path / name).touch(mode=0o755)
    assert programs().promtool == tmp_path / "promtool"
    assert os.access(programs().prometheus, os.X_OK)
