"""The page, the record that it is made of, and what of a run is a surprise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.matrix import page
from tests.matrix.cells import Cell
from tests.matrix.environments import peers
from tests.matrix.explained import Explained, complaints
from tests.matrix.peer_as_client import borne_out, cells_in
from tests.matrix.recorded import PeerResult, Recorded
from tests.matrix.scenarios import OF_SIDE, Outcome, Scenario, Side

PASSES, FAILS, CANNOT = Cell(Outcome.PASS), Cell(Outcome.FAIL, "broke"), Cell(Outcome.CANNOT, "no such API")
UNTRIED = Cell(Outcome.UNTRIED, "not run")
CARD = ("peer", Side.CLIENT, Scenario.CARD)


def peer(**cells: Cell) -> dict[str, PeerResult]:
    """What came of one peer as a client; scenarios that are not named have passed."""
    every = {scenario: cells.get(scenario, PASSES) for scenario in Scenario}
    return {"peer": PeerResult({"framework": "1.0"}, {Side.CLIENT: every})}


def test_the_page_in_the_docs_is_made_of_the_recorded_run() -> None:
    assert page.FILE.read_text("utf-8") == page.page(Recorded.in_file(), Explained.in_file())


def test_every_cell_of_every_peer_is_recorded_for_the_versions_that_its_folder_pins() -> None:
    on_record = Recorded.in_file().peers
    assert list(on_record) == [peer.name for peer in peers()]
    for peer_ in peers():
        result = on_record[peer_.name]
        assert (peer_.name, result.versions) == (peer_.name, peer_.versions)
        assert set(result.cells) == {side for side in Side if peer_.command(side)}
        assert {side: tuple(cells) for side, cells in result.cells.items()} == {
            side: OF_SIDE[side] for side in result.cells
        }


def test_every_recorded_failure_has_a_reason_and_every_reason_a_failure() -> None:
    assert complaints(Recorded.in_file().peers, Explained.in_file()) == []


def test_a_failure_without_a_reason_is_a_surprise() -> None:
    assert complaints(peer(card=FAILS), Explained()) == ["peer client card fails: broke"]
    assert complaints(peer(card=FAILS), Explained({CARD: "its own fault"})) == []


@pytest.mark.parametrize("cell", [PASSES, CANNOT], ids=["it passes", "the peer cannot"])
def test_a_reason_for_what_does_not_fail_is_a_surprise(cell: Cell) -> None:
    reasons = Explained({CARD: "its own fault"})
    assert complaints(peer(card=cell), reasons) == ["peer client card does not fail any more"]
    assert complaints({}, reasons) == []


def test_an_outcome_other_than_the_recorded_one_is_a_difference() -> None:
    before = Recorded(peer(card=FAILS))
    assert before.differences(peer(card=FAILS)) == []
    assert before.differences(peer(card=PASSES)) == ["peer client card is pass"]
    assert len(Recorded().differences(peer())) == len(Scenario)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = Recorded(peer(card=FAILS, text=CANNOT))
    (tmp_path / "results.json").write_text(written.to_text(), "utf-8")
    assert Recorded.in_file(tmp_path / "results.json") == written


def test_a_part_of_a_run_leaves_the_other_peers_on_record() -> None:
    other = {"another": PeerResult({"other": "2.0"}, {})}
    assert dict(Recorded(peer()).with_peers(other).peers) == peer() | other
    assert list(Recorded(peer()).with_peers(other).peers) == ["another", "peer"]


def test_the_page_gives_each_reason_once_with_the_scenarios_that_it_is_for() -> None:
    told = page.page(
        Recorded(peer(card=FAILS, text=CANNOT, data=CANNOT, plain=UNTRIED)),
        Explained({CARD: "Its own fault."}),
    )
    assert "| framework 1.0 | **no** | - | ? | - | yes | yes | yes | yes | yes | yes |\n" in told
    assert (
        "framework 1.0:\n\n- card: Its own fault.\n- text, data part: no such API\n- plain words: not run\n"
        in told
    )


def test_what_a_script_prints_beside_the_lines_of_the_contract_is_no_cell() -> None:
    said = 'Loading...\n{"scenario": "card", "outcome": "fail", "words": "broke"}\n{"else": 1}\n'
    assert cells_in(said) == {Scenario.CARD: FAILS}


def listed(context: str, words: str, state: str = "COMPLETED") -> dict[str, Any]:
    """A task as the bridge lists it."""
    history = [{"parts": [{"text": words}]}]
    return {"contextId": context, "status": {"state": f"TASK_STATE_{state}"}, "history": history}


def test_a_pass_that_the_tasks_of_the_bridge_bear_out_stays_one() -> None:
    cells = dict.fromkeys(Scenario, PASSES)
    turns = [listed("c", "echo text=first"), listed("c", "echo text=second")]
    assert borne_out(cells, [*turns, listed("d", "wait {}", "CANCELED")]) == cells


def test_a_pass_that_the_tasks_of_the_bridge_speak_against_is_a_failure() -> None:
    turns = [listed("c", "echo text=first"), listed("d", "echo text=second")]
    assert borne_out(dict.fromkeys(Scenario, PASSES), [*turns, listed("e", "wait {}", "WORKING")]) == {
        **dict.fromkeys(Scenario, PASSES),
        Scenario.CANCEL: Cell(Outcome.FAIL, "the bridge has no canceled task"),
        Scenario.TURNS: Cell(Outcome.FAIL, "the two turns came to the bridge in two contexts"),
    }
    cannot = {Scenario.CANCEL: CANNOT}
    assert borne_out(cannot, []) == cannot


def test_no_environment_names_a_registry() -> None:
    for peer_ in peers():
        assert "://" not in peer_.manifest.read_text("utf-8")
