"""What every test shares: one event loop kind, and the two-way check of requirements."""

from __future__ import annotations

import os

import pytest

from tests.requirements import REQUIREMENTS

_proved: set[str] = set()


@pytest.fixture(scope="session", autouse=True)
def _state_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What a bridge remembers goes to a folder of the test run, not to the user's."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The bridge runs on asyncio, as uvicorn does."""
    return "asyncio"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test may only name requirements that exist. One that takes minutes runs only when `-m` asks for it."""
    if not config.option.markexpr:
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
    for item in items:
        for mark in item.iter_markers("proves"):
            unknown = set(mark.args) - set(REQUIREMENTS)
            if unknown:
                raise pytest.UsageError(
                    f"{item.nodeid} proves {', '.join(sorted(unknown))}: no such requirement"
                )
            _proved.update(mark.args)


def pytest_collection_finish(session: pytest.Session) -> None:
    """A requirement may not stand there without a test; only a run of the whole suite can tell."""
    whole = not session.config.option.keyword and not session.config.option.markexpr
    collected_all = [str(arg).rstrip("/") for arg in session.config.args] == ["tests"]
    unproved = sorted(set(REQUIREMENTS) - _proved)
    if whole and collected_all and unproved:
        raise pytest.UsageError(f"requirements that no test proves: {', '.join(unproved)}")
