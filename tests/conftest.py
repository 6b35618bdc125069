"""What every test shares: one event loop kind, folders of the run's own, and marks that name what exists."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
from hypothesis import settings

from tests.peers.node import require_peers
from tests.peers.oidc_provider import OidcProvider, running_issuers
from tests.requirements import REQUIREMENTS
from tests.support import (
    failed,
    forked,
    outside,
    proactor_like,
    rewriting,
    slowest,
    tiers,
    validated_again,
    workers,
)

FULL_EXAMPLES: Final = 200
"""Of what is tried with any values, in `make fuzz`; the suite takes a share of it."""
settings.register_profile("fuzz", max_examples=FULL_EXAMPLES, deadline=None)
settings.register_profile("suite", max_examples=FULL_EXAMPLES // 4, deadline=None)
settings.load_profile("suite")

_NEW_OBJECTS: Final = 10_000
"""How many objects are made before the garbage collector looks for garbage among them; 700 took 5 % of the CPU."""
LIKE_WINDOWS: Final = "--like-windows"
_MISTAKES: Final = pytest.StashKey[Path]()
_levels_before: Final[dict[logging.Logger, int]] = {}
"""The levels of the loggers that a test has changed."""


@pytest.fixture(scope="module", autouse=True)
def _folders_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What a bridge of a whole module remembers goes to folders of the module's own, and not to the user's."""
    folder = tmp_path_factory.mktemp("remembered")
    with _remembering_in(folder):
        yield folder


@pytest.fixture(autouse=True)
def _each_test(_folders_of_module: Path, pytestconfig: pytest.Config) -> Iterator[None]:
    """A test begins with nothing learned of a server, since a bridge calls a server by what another one learned of it.
    What the bridge makes without validation is validated (support/validated_again.py), and log levels last for a test.

    It is one fixture, since each fixture takes time in each of the tests.
    """
    with _remembering_in(_folders_of_module / uuid4().hex):
        yield
    for logger, level in [*_levels_before.items()]:
        logger.setLevel(level)
    _levels_before.clear()
    assert not (found := validated_again.mistakes(pytestconfig.stash[_MISTAKES])), found


@contextmanager
def _remembering_in(folder: Path) -> Iterator[None]:
    """Let bridges that start meanwhile, here or in a child process, keep what they remember in a folder."""
    folders = {variable: str(folder / variable.lower()) for variable in ("XDG_STATE_HOME", "XDG_CACHE_HOME")}
    before = {variable: os.environ.get(variable) for variable in folders}
    os.environ.update(folders)
    try:
        yield
    finally:
        for variable, value in before.items():
            if value is None:
                del os.environ[variable]
            else:
                os.environ[variable] = value


@pytest.fixture(scope="session", autouse=True)
def _only_loopback(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test asks the open network: no proxy stands between, and nobody's certificate is trusted.

    An HTTP client, here or in a child process, reads the certificates of the system in 20 ms, and most tests make one.
    """
    for variable in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssl_cert_file"):
        for name in (variable, variable.upper()):
            os.environ.pop(name, None)
    os.environ["SSL_CERT_DIR"] = str(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session", autouse=True)
def _signals_arrive() -> None:
    """A shell's `&` hands on that SIGINT is ignored, and nohup that SIGHUP is; commands that are started here would
    ignore them too."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def _fork_server_ends() -> Iterator[None]:
    """With its worker, and not some time later."""
    yield
    forked.stop()


@pytest.fixture(scope="session")
def issuers() -> Iterator[Mapping[str, OidcProvider]]:
    """Issuers of tokens that nobody here wrote, for all tests of a run: see tests/peers/oidc_provider.py."""
    require_peers()
    with running_issuers() as found:
        yield found


@pytest.fixture(scope="session", autouse=True)
def _log_levels_are_noted() -> None:
    """A command that is run in this process sets them, and later tests would not see what is logged."""
    set_level = logging.Logger.setLevel

    def noted(self: logging.Logger, level: int | str) -> None:
        _levels_before.setdefault(self, getattr(self, "level", logging.NOTSET))
        set_level(self, level)

    logging.Logger.setLevel = noted  # type: ignore[method-assign]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The bridge runs on asyncio, as uvicorn does."""
    return "asyncio"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the event loop of Windows, as far as another system can have it, and two reports of a run."""
    parser.addoption(
        LIKE_WINDOWS,
        action="store_true",
        help="run all tests on event loops that refuse what Windows' one refuses",
    )
    parser.addoption(failed.OPTION, type=Path, help="write the names of the failed tests to this file")
    if workers.ARE_POSSIBLE:
        parser.addoption(workers.OPTION, type=int, default=0, help="run the tests in this many forks")
    parser.addoption(slowest.OPTION, type=int, default=0, help="report this many of the slowest tests")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests marked `any_loop` on both kinds of event loop. Windows has but one."""
    is_one = sys.platform == "win32" or metafunc.config.getoption(LIKE_WINDOWS)
    if metafunc.definition.get_closest_marker("any_loop") and not is_one:
        metafunc.parametrize("_event_loops", [False, True], ids=["", "like Windows"], indirect=True)


@pytest.fixture(autouse=True)
def _event_loops(request: pytest.FixtureRequest) -> Iterator[None]:
    """The kind of event loops of a test, and of the commands that it starts."""
    with proactor_like.installed() if getattr(request, "param", False) else nullcontext():
        yield


def pytest_configure(config: pytest.Config) -> None:
    """In a run that leaves out what needs a process or a socket, nothing else may open one. In all runs, what the
    bridge makes is validated."""
    config.stash[_MISTAKES] = file = validated_again.start()
    config.add_cleanup(file.unlink)
    if config.getoption(LIKE_WINDOWS):
        loops = ExitStack()
        loops.enter_context(proactor_like.installed())
        config.add_cleanup(loops.close)
    if count := config.getoption(slowest.OPTION):
        config.pluginmanager.register(slowest.Slowest(count))
    if (file := config.getoption(failed.OPTION)) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(failed.Failed(file))
    if count := config.getoption(workers.OPTION, default=0):

        def begin(folder: Path) -> None:
            config.stash[_MISTAKES] = file = folder / "invalid"
            validated_again.note_in(file)

        config.pluginmanager.register(workers.Workers(count, begin))
    if outside.MARK in config.option.markexpr:
        config.pluginmanager.register(outside.Guard())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs a process or a socket. A test that is `slow` or `long` runs only when `-m` asks for it."""
    tiers.mark_long(items, are_all=not any("::" in argument for argument in config.args))
    if outside.MARK in config.option.markexpr:
        for item in items:
            outside.mark(item)
    if not config.option.markexpr:
        left_out = {
            item for item in items if item.get_closest_marker("slow") or item.get_closest_marker("long")
        }
        config.hook.pytest_deselected(items=[*left_out])
        items[:] = [item for item in items if item not in left_out]
    for item in items:
        if item.get_closest_marker("windows") and sys.platform != "win32":
            item.add_marker(pytest.mark.skip(reason="only Windows can prove it"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Nothing of what is collected is garbage. Test modules are rewritten by a second process, too."""
    pid = rewriting.begin(session.config) if session.config.getoption(workers.OPTION, default=0) > 1 else None
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        if pid is not None:
            os.waitpid(pid, 0)


def pytest_collection_finish() -> None:
    """What is collected stays to the end: the garbage collector took half a second each time that it looked at it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test may only name requirements that exist. What only Windows can prove is skipped elsewhere."""
    if sys.platform != "win32" and item.get_closest_marker("windows"):
        pytest.skip("only Windows can prove it")
    unknown = sorted(_proved_by(item) - set(REQUIREMENTS))
    if unknown:
        pytest.fail(f"it proves {', '.join(unknown)}: no such requirement", pytrace=False)


@pytest.fixture(scope="session")
def proved(request: pytest.FixtureRequest) -> dict[str, set[str]]:
    """What each test of this run proves, by its id below tests/; skips in a run that is not of the whole suite.

    With several workers every worker collects all tests, so that the one that runs the asking test knows.
    """
    options = request.config.option
    collected_all = [str(arg).rstrip("/") for arg in request.config.args] == ["tests"]
    if options.keyword or options.markexpr or not collected_all:
        pytest.skip("only a run of the whole suite can tell")
    return {item.nodeid.removeprefix("tests/"): _proved_by(item) for item in request.session.items}


def _proved_by(item: pytest.Item) -> set[str]:
    return {name for mark in item.iter_markers("proves") for name in mark.args}
