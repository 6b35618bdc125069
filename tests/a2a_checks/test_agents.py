"""The checks against agents in the test's own process: ours pass, a2a-sdk's fails what it is known to fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.mcp.client.eras import Era
from tests.a2a_checks import CHECKS
from tests.a2a_checks.known import KNOWN_FAILURES
from tests.a2a_checks.report import Report
from tests.a2a_checks.runs import check_again, check_bridge, check_bridge_with_token, check_sdk
from tests.a2a_checks.table import Need

pytestmark = pytest.mark.long

SILENCE_SECONDS = 0.05
"""These agents are in this process, and wrong answers would come at once."""
NOBODYS_NEEDS = {
    Need.REQUIRED_EXTENSION,
    Need.SIGNATURES,
    Need.NO_STREAMS,
    Need.OLDER_VERSION,
    Need.NO_OLDER_VERSION,
}
"""What no agent at hand declares, or what none of them leaves out; 0.3 is declared by ours alone."""


WITHOUT_PUSH = {check.id for check in CHECKS if Need.PUSH in check.needs}
WITHOUT_CALLERS = {check.id for check in CHECKS if {Need.CREDENTIAL, Need.OTHER_CALLER} & {*check.needs}}
PUBLIC = WITHOUT_PUSH | WITHOUT_CALLERS | {"extended-declared"}
"""What an agent for everybody gives no occasion for, if it sends no push notifications."""


def untried(report: Report) -> set[str]:
    """The checks that were not tried, beside those that nobody here gives occasion for."""
    needs = {result.id: set(result.check.needs) for result in report.results}
    return {check_id for check_id, _ in report.untried() if not needs[check_id] & NOBODYS_NEEDS}


@pytest.mark.parametrize("store", ["memory:", "sqlite"])
async def test_a_wrapped_server_does_all_that_the_checks_ask(store: str, tmp_path: Path) -> None:
    in_memory = store == "memory:"
    report = await check_bridge(
        store if in_memory else f"sqlite:///{tmp_path / 'tasks.db'}", SILENCE_SECONDS, straight=not in_memory
    )
    assert report.failures() == ()
    assert untried(report) == {
        "stream-message",
        "stream-auth-open",
        "turn-auth-explained",
        "turn-auth-messages",
        *PUBLIC,
    }


async def test_a_wrapped_server_does_it_behind_a_token_and_with_logins(tmp_path: Path) -> None:
    report = await check_bridge_with_token(
        f"sqlite:///{tmp_path / 'tasks.db'}", SILENCE_SECONDS, straight=True
    )
    assert report.failures() == ()
    # Each of our answers is a task, it pushes, and each authenticated caller has an extended card.
    without = {"push-undeclared", "push-undeclared-send", "extended-undeclared"}
    assert untried(report) == {"stream-message", *without}


async def test_the_sdks_own_server_fails_what_it_is_known_to_fail() -> None:
    report = await check_sdk(SILENCE_SECONDS)
    failed = {(failure.id, failure.binding) for failure in report.failures()}
    bindings = {result.id: result.check.bindings for result in report.results}
    assert failed == {(check_id, binding) for check_id in KNOWN_FAILURES for binding in bindings[check_id]}
    # Its skills are named in metadata alone, and no extension of it says what they take.
    by_words = {"skill-among-texts", "skill-two-calls", "card-examples"}
    assert untried(report) == {"ext-echo", *PUBLIC, *by_words}


@pytest.mark.parametrize("era", [Era.LEGACY, Era.MODERN])
async def test_an_agent_as_tools_as_an_agent_again_does_all_of_it(era: Era, tmp_path: Path) -> None:
    report = await check_again(tmp_path, era, SILENCE_SECONDS, straight=True)
    assert report.failures() == ()
    # As directly, but for one: the agent's Message is a tool's result on the way, and so a task in the end. What is
    # data there is a text on the way, as the tool has no output schema.
    of_data = {"output-once", "output-json"}
    assert untried(report) == {"stream-message", *PUBLIC, *of_data}
