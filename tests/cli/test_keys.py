"""`mcp-a2a keys`: a new key is private, and what is printed is what a bridge and its readers take."""

from __future__ import annotations

import json
import stat
import tomllib
from pathlib import Path

import pytest

from bridge.a2a.server.card_keys import ALGORITHMS, card_key
from bridge.config.load import load
from bridge.identity.callers.json_web_tokens import keys_in
from bridge.local.private_files import HAS_MODES
from tests.support.command import run_here
from tests.support.files import DEVTOOLS, RAW, written


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.smoke("ES256", "EdDSA")
def test_a_new_key_is_for_its_owner_and_the_printed_lines_name_it(algorithm: str, tmp_path: Path) -> None:
    file = tmp_path / "card.pem"
    done = run_here("keys", "new", "--algorithm", algorithm, str(file), state=tmp_path)
    assert done.returncode == 0, done.stderr
    key = card_key(file.read_text())
    assert key.signing.algorithm == algorithm
    assert key.signing.id in done.stderr
    assert tomllib.loads(done.stdout) == {"bridge": {"card_keys": [{"file": str(file)}]}}
    assert not HAS_MODES or stat.S_IMODE(file.stat().st_mode) == 0o600
    shown = run_here("keys", "show", str(file), state=tmp_path)
    assert json.loads(shown.stdout) == {"keys": [dict(key.public)]}
    assert keys_in(json.loads(shown.stdout), 1)[0].key_id == key.signing.id
    loaded = load(written(tmp_path, done.stdout + RAW + DEVTOOLS))
    assert [secret.value for secret in loaded.config.bridge.card_keys] == [file.read_text().strip()]
    assert loaded.config.bridge.card_forms == ("strict", "sdk")
    assert file in loaded.files


def test_a_file_that_exists_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "card.pem"
    file.write_text("mine")
    done = run_here("keys", "new", str(file), state=tmp_path)
    assert (done.returncode, file.read_text()) == (2, "mine")
    assert "exists, and is not replaced" in done.stderr


def test_a_file_without_a_key_is_said(tmp_path: Path) -> None:
    file = tmp_path / "card.pem"
    file.write_text("mine")
    done = run_here("keys", "show", str(file), state=tmp_path)
    assert done.returncode == 2
    assert "holds no private key in PEM" in done.stderr


def test_check_finds_a_key_that_cannot_sign_cards(tmp_path: Path) -> None:
    (tmp_path / "card.pem").write_text("mine")
    file = written(tmp_path, '[bridge]\ncard_keys = [{ file = "card.pem" }]\n' + RAW + DEVTOOLS)
    done = run_here("check", "--offline", str(file), state=tmp_path)
    assert done.returncode == 1
    assert "bridge.card_keys: it holds no private key in PEM" in done.stdout + done.stderr
