"""The requirements and the tests, each way: what is claimed is proved, and tests say what they prove, or why not."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.requirements import REQUIREMENTS, by_id
from tests.requirements.exemptions import EXEMPT, FOLDERS
from tests.requirements.requirement import Requirement, Revision, Side, Source, Status

TESTS: Final = Path(__file__).parent
SOURCE: Final = Source(Revision.DESIGN, "mapping", "docs/mapping.md")


def test_every_claimed_requirement_is_proved_by_a_test(proved: dict[str, set[str]]) -> None:
    claimed = {name for name, one in REQUIREMENTS.items() if one.status is Status.CLAIMED}
    unproved = sorted(claimed - set().union(*proved.values()))
    assert not unproved, f"requirements that no test proves: {', '.join(unproved)}"


def test_what_is_deferred_is_proved_by_no_test(proved: dict[str, set[str]]) -> None:
    deferred = {name for name, one in REQUIREMENTS.items() if one.status is Status.DEFERRED}
    kept = sorted(deferred & set().union(*proved.values()))
    assert not kept, f"deferred, and proved all the same: {', '.join(kept)}"


def test_every_test_of_a_protocol_says_what_it_proves_unless_its_file_has_a_reason(
    proved: dict[str, set[str]],
) -> None:
    silent = {test.partition("::")[0] for test, names in proved.items() if not names and _is_bound(test)}
    assert sorted(silent) == sorted(EXEMPT)


def _is_bound(test: str) -> bool:
    return test.partition("/")[0] in FOLDERS


def test_every_page_of_the_design_is_there() -> None:
    pages = {
        source.address
        for one in REQUIREMENTS.values()
        for source in one.sources
        if source.revision is Revision.DESIGN
    }
    assert not [page for page in sorted(pages) if not (TESTS.parent / page).is_file()]


def test_every_other_address_is_a_page_of_the_web() -> None:
    addresses = {
        source.address
        for one in REQUIREMENTS.values()
        for source in one.sources
        if source.revision is not Revision.DESIGN
    }
    assert all(address.startswith("https://") for address in addresses)


def test_every_side_of_every_revision_has_requirements() -> None:
    found = {
        (revision, side) for one in REQUIREMENTS.values() for revision in one.revisions for side in one.sides
    }
    protocols = {
        Revision.A2A_1_0: Side.AGENT,
        Revision.A2A_0_3: Side.AGENT,
        Revision.A2A_0_1: Side.AGENT,
        Revision.MCP_2025_11_25: Side.SERVER,
        Revision.MCP_2026_07_28: Side.SERVER,
        Revision.MCP_TASKS: Side.SERVER,
    }
    assert {
        (revision, side) for revision, serving in protocols.items() for side in (serving, Side.CLIENT)
    } <= found


def test_two_requirements_of_one_id_are_refused() -> None:
    one = Requirement(id="one", sources=(SOURCE,), sentence="It is", sides=frozenset({Side.BRIDGE}))
    with pytest.raises(ValueError, match="two requirements are called one"):
        by_id([one, one])


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"sentence": ""}, "not whole"),
        ({"sentence": "It is."}, "full stop"),
        ({"status": Status.DEFERRED}, "a reason belongs"),
        ({"reason": "none"}, "a reason belongs"),
        ({"sources": (Source(Revision.A2A_1_0, "1", "https://example.com/#1"),)}, "knows no bridge"),
    ],
)
def test_a_requirement_that_is_not_whole_cannot_be_made(more: dict[str, object], words: str) -> None:
    whole: dict[str, object] = {
        "id": "one",
        "sources": (SOURCE,),
        "sentence": "It is",
        "sides": frozenset({Side.BRIDGE}),
    }
    with pytest.raises(ValueError, match=words):
        Requirement(**{**whole, **more})  # type: ignore[arg-type]
