"""Finds the package that a command starts: `npx -y PACKAGE`, `uvx PACKAGE`, `python -m MODULE`, `docker run IMAGE`, or
a path that holds the package. Pure.

A command that is not understood to its end names no package: an option may change what is run, and a package may only
look like another package.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

Kind = Literal["npm", "pypi", "image", "command"]


@dataclass(frozen=True, slots=True)
class Package:
    """What a command starts."""

    kind: Kind
    name: str
    command: str = ""
    """The command of the package that is started, if the command line names it."""
    version: str | None = field(default=None, compare=False)
    """The version that the command line names, "" if it names none; None for a package that is not fetched by name."""

    @property
    def is_exact(self) -> bool:
        """Whether the same release runs at every start. Of images and installed programs, the command does not say
        it."""
        exact = _EXACT.get(self.kind)
        return self.version is None or exact is None or exact.fullmatch(self.version) is not None


@dataclass(frozen=True, slots=True)
class _Runner:
    """A program that starts a package, and its options."""

    kind: Kind | None
    """None for a runner that starts another command."""
    alone: frozenset[str] = frozenset()
    """Options without a value."""
    with_value: frozenset[str] = frozenset()
    package: frozenset[str] = frozenset()
    """Options whose value is the package."""


def _options(words: str) -> frozenset[str]:
    return frozenset(words.split())


_NPM: Final = _Runner(
    "npm",
    _options(
        "-y --yes -q --quiet --silent --no-install --prefer-offline --prefer-online --offline"
        " --ignore-existing --bun --"
    ),
    _options("--registry --cache --prefix --userconfig --loglevel"),
    _options("-p --package"),
)
_UV_ALONE: Final = _options(
    "-q --quiet -v --verbose --offline --isolated -n --no-cache --refresh -U --upgrade"
)
_UV_VALUES: Final = _options(
    "-p --python --with --index --index-url --default-index --extra-index-url --cache-dir --directory --project"
)
_UVX: Final = _Runner("pypi", _UV_ALONE, _UV_VALUES, _options("--from --spec"))
_UV_RUN: Final = _Runner(
    None, _UV_ALONE | _options("--frozen --locked --no-sync --no-project --"), _UV_VALUES
)
_IMAGE: Final = _Runner(
    "image",
    _options("-i -t -d -q --rm --init --interactive --tty --detach --quiet --read-only --no-healthcheck"),
    _options(
        "-v -e -u -w -m -p -l -h --volume --mount --env --env-file --user --workdir --memory --cpus --publish --label"
        " --network --name --platform --pull --add-host --hostname --dns --tmpfs --security-opt --cap-drop --cap-add"
        " --ulimit --pids-limit --gpus"
    ),
)
_RUNNERS: Final[Mapping[tuple[str, ...], _Runner]] = {
    ("npx",): _NPM,
    ("pnpx",): _NPM,
    ("bunx",): _NPM,
    ("bun", "x"): _NPM,
    ("npm", "exec"): _NPM,
    ("npm", "x"): _NPM,
    ("pnpm", "dlx"): _NPM,
    ("yarn", "dlx"): _NPM,
    ("uvx",): _UVX,
    ("uv", "tool", "run"): _UVX,
    ("pipx", "run"): _UVX,
    ("uv", "run"): _UV_RUN,
    ("docker", "run"): _IMAGE,
    ("podman", "run"): _IMAGE,
}
_SPEC: Final[Mapping[Kind, re.Pattern[str]]] = {
    "npm": re.compile(r"(?P<name>(?:@[^/@:\s]+/)?[^/@:\s]+)(?:@(?P<version>[^/:\s]*))?"),
    "pypi": re.compile(
        r"(?P<name>[A-Za-z0-9][\w.-]*)(?:\[[\w,.-]*\])?(?P<version>(?:[=<>~!]=|[<>@])[^/:\s]*)?", re.ASCII
    ),
    "image": re.compile(
        r"(?:(?:index\.)?docker\.io/)?(?P<name>[^/:@\s]+/[^/:@\s]+)(?::[\w.-]+)?(?:@sha256:\w+)?"
    ),
}
"""A package with its version. A version that is a URL or a path is another package."""
_EXACT: Final[Mapping[Kind, re.Pattern[str]]] = {
    "npm": re.compile(r"=?v?\d+\.\d+\.\d+(?:[-+][\w.+-]+)?"),
    "pypi": re.compile(r"(?:==|@)\d[\w.!+-]*"),
}
"""The versions that never mean another release, as `latest` and `^1.2` do."""
_PROGRAM_END: Final = re.compile(r"\.(exe|cmd|bat)$", re.IGNORECASE)
_PYTHON: Final = re.compile(r"(python|pypy)[\d.]*w?|py")
_PYTHON_ALONE: Final = re.compile(r"-([uIEsSBqOP]+|3(\.\d+)?)")
_NODE: Final = frozenset({"node", "bun", "deno"})
_NODE_ALONE: Final = re.compile(
    r"run|-A|--no-warnings|--enable-source-maps|--max-old-space-size=\d+|--allow-[\w-]+"
)
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_SHORT: Final = 2
_IN_PACKAGE: Final = re.compile(
    r"(?:.*/)?node_modules/(?!\.bin/)(?P<name>@[^/]+/[^/]+|[^@/][^/]*)(?:/(?!(?:.*/)?node_modules/).*)?"
)
"""A path in the folder of a package; the innermost `node_modules` counts."""


def package_of(command: Sequence[str]) -> Package | None:
    """The package that a command starts; None if the command names none, or is not understood."""
    if not command:
        return None
    program, words = _program(command[0]), list(command[1:])
    if program == "env":
        while words and _ASSIGNMENT.fullmatch(words[0]):
            words.pop(0)
        return package_of(words)
    if program == "cmd":
        return package_of(words[1:]) if words[:1] in (["/c"], ["/C"]) else None
    if program == "uv" and (run := _read(_UV_RUN, words)) is not None:
        words = run[1]  # options may also stand before `run`
    for named, runner in _RUNNERS.items():
        if (program, *words[: len(named) - 1]) == named:
            return _run_by(runner, words[len(named) - 1 :])
    if _PYTHON.fullmatch(program):
        return _module(words)
    if program in _NODE:
        while words and _NODE_ALONE.fullmatch(words[0]):
            words.pop(0)
        return _holding(words[0]) if words else None
    return _holding(command[0]) or Package("command", program)


def normalized(name: str) -> str:
    """The name of a Python package, as registries compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _program(word: str) -> str:
    return _PROGRAM_END.sub("", word.replace("\\", "/").rpartition("/")[2])


def _run_by(runner: _Runner, words: Sequence[str]) -> Package | None:
    read = _read(runner, words)
    if read is None:
        return None
    named, rest = read
    if runner.kind is None:
        return package_of(rest)
    if not rest:
        return None
    spec = _SPEC[runner.kind].fullmatch(named or rest[0])
    if spec is None:
        return None
    name = normalized(spec["name"]) if runner.kind == "pypi" else spec["name"]
    return Package(
        runner.kind, name, _program(rest[0]) if named else "", spec.groupdict().get("version") or ""
    )


def _read(runner: _Runner, words: Sequence[str]) -> tuple[str, list[str]] | None:
    """The package that an option names, and the words after the options; None if an option is not known."""
    named, at = "", 0
    while at < len(words) and words[at].startswith("-"):
        option, equals, value = words[at].partition("=")
        at += 1
        if option in runner.alone and not equals:
            continue
        if option in runner.with_value | runner.package:
            if not equals:
                value, at = words[at] if at < len(words) else "", at + 1
            if option in runner.package:
                if named:
                    return None
                named = value
        elif not _is_short(runner, words[at - 1]):
            return None
    return named, list(words[at:])


def _is_short(runner: _Runner, word: str) -> bool:
    """Whether a word holds several short options (`-it`), or a short option with its value (`-v/a:/b`)."""
    if runner.kind != "image" or word.startswith("--"):
        return False
    return word[:_SHORT] in runner.with_value or all(f"-{letter}" in runner.alone for letter in word[1:])


def _module(words: Sequence[str]) -> Package | None:
    """The package of `python -m MODULE`."""
    rest = list(words)
    while rest and _PYTHON_ALONE.fullmatch(rest[0]):
        rest.pop(0)
    if len(rest) > 1 and rest[0] == "-m":
        return Package("pypi", normalized(rest[1])) if rest[1].isidentifier() else None
    return None


def _holding(path: str) -> Package | None:
    """The npm package whose folder holds a path."""
    plain = posixpath.normpath(path.replace("\\", "/"))
    match = _IN_PACKAGE.fullmatch(plain)
    return None if match is None else Package("npm", match["name"])
