"""The terminal: output and questions for a person, and the rendering of a card.

`bridge.cli.call.results` renders calls, and `bridge.cli.banner` renders bridges.
"""

from __future__ import annotations

import json
import os
import re
import select
import sys
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from getpass import getpass
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console
from rich.text import Text

from bridge.cli.encoding import REPLACING
from bridge.text.safe_text import with_visible_characters

if TYPE_CHECKING:
    from bridge.a2a.client.agent_card import FoundCard
    from bridge.a2a.model.objects import AgentCard


class Terminal(Console):
    """A console that prints texts as they are: it reads no markup, and control characters are escaped."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, soft_wrap=True, emoji=False, markup=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """A text as it is printed."""
        return super().render_str(with_visible_characters(text), **options)

    def say(self, *words: str | tuple[str, str]) -> None:
        """Print a line of words, each a text or a text with its style. A line break in a text is escaped, so that a
        peer's words never look like a line of the bridge. If the first word is a line break, an empty line precedes."""
        if words[:1] == ("\n",):
            self.print()
            words = words[1:]
        self.print(styled(*words))

    def say_in_lines(self, words: str, indent: str = "    ") -> None:
        """Print a peer's words with their line breaks. Lines after the first are indented, unlike the bridge's own."""
        for place, line in enumerate(words.splitlines() or [""]):
            self.say(f"{indent if place else ''}{line}")


def styled(*words: str | tuple[str, str]) -> Text:
    """Join words of one line, each a text or a text with its style."""
    pairs = ((word, "") if isinstance(word, str) else word for word in words)
    return Text.assemble(*((with_visible_characters(word, in_one_line=True), style) for word, style in pairs))


err = Terminal(stderr=True)
out = Terminal()

_OF_A_FILE: Final = re.compile(r" *\d* \| ")
"""In a message: a line of a file, or the marks below it."""
_QUOTED: Final = re.compile(r"`[^`]*`")
_NO_BREAK: Final = "\x00"

_AS_AGENT: Final = "as the agent"

_LOOK_SECONDS: Final = 0.5
"""How long a Ctrl+C may go unnoticed while a person is asked."""


def card(found: FoundCard, arguments_of: Callable[[str], Iterable[str]]) -> None:
    """Print a card. `arguments_of` gives the known arguments of a skill, in lines."""
    shown, capabilities = found.card, found.card.capabilities
    out.say((shown.name, "bold"), f" {shown.version}")
    out.say_in_lines(shown.description)
    if shown.provider:
        out.say(f"by {shown.provider.organization} {shown.provider.url}")
    _section(
        "Interfaces",
        (f"{one.protocol_binding} {one.protocol_version}  {one.url}" for one in shown.supported_interfaces),
    )
    _section(
        "Capabilities",
        (
            f"{words}: {'yes' if has else 'no'}"
            for words, has in (
                ("streaming", capabilities.streaming),
                ("push notifications", capabilities.push_notifications),
                ("extended card", capabilities.extended_agent_card),
            )
        ),
    )
    _section(
        "Extensions",
        (
            f"{one.uri}{' (required)' if one.required else ''}  {one.description or ''}".rstrip()
            for one in capabilities.extensions or ()
        ),
    )
    _section("Security", _security_lines(shown))
    _section("Signatures", _signature_lines(found))
    _section("Input", shown.default_input_modes)
    _section("Output", shown.default_output_modes)
    _skills(shown, arguments_of)


def deviations(found: FoundCard) -> None:
    """Print where a card deviates from the specification."""
    for deviation in found.deviations:
        err.say(("does not conform to A2A:", "yellow"), f" {deviation}")


def card_text(found: FoundCard) -> None:
    """Print a card as it was received, indented."""
    write_document(json.dumps(json.loads(found.text), indent=2, ensure_ascii=False) + "\n")


def ask(line: str) -> str | None:
    """Ask a person at the terminal; None when they end the input instead (Ctrl+D).

    `input` would write its prompt to stdout, which belongs to the results.
    """
    try:
        # Not by rich: a Ctrl+C while it prints leaves the line in its buffer, so that it is printed again.
        err.file.write(f"{with_visible_characters(line)} ")
        err.file.flush()
        _wait_for_a_line()
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        err.print()  # the next output begins on a new line
        raise
    if not answer:
        err.print()
        return None
    return answer.rstrip("\r\n")


def ask_secret(line: str) -> str | None:
    """Ask a person at the terminal for a secret, which is not shown; None when they end the input instead."""
    if sys.platform == "win32":
        try:
            return getpass(f"{with_visible_characters(line)} ")
        except EOFError:
            return None
    else:
        import termios  # only POSIX has it

        terminal = sys.stdin.fileno()
        before = termios.tcgetattr(terminal)
        silent = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
        termios.tcsetattr(terminal, termios.TCSAFLUSH, silent)
        try:
            answer = ask(line)
        finally:
            termios.tcsetattr(terminal, termios.TCSAFLUSH, before)
        if answer is not None:
            err.print()  # the line break that the person typed was not shown either
        return answer


def _wait_for_a_line() -> None:
    """Wait until the person has typed a line.

    Python does not notice a Ctrl+C that comes just before a read begins until the read ends. So the terminal is polled,
    and read only when a line is there. (Windows wakes a read by itself, and cannot select a terminal.)
    """
    while (
        os.name == "posix" and sys.stdin.isatty() and not select.select([sys.stdin], [], [], _LOOK_SECONDS)[0]
    ):
        pass


def say(line: str) -> None:
    """Print one line on stderr."""
    err.say(line)


def complain(text: str) -> None:
    """Print an error on stderr: in whole lines for a program, wrapped for a terminal."""
    lines = text.splitlines()
    if err.is_terminal:
        lines = [part for line in lines for part in wrapped(line, err.width)]
    for line in lines:
        click.echo(with_visible_characters(line), err=True)


def wrapped(line: str, width: int, indent: str = "") -> list[str]:
    """Wrap a line at spaces; all lines but the first are indented.

    Text between backticks stays whole, and so does a line of a file.
    """
    if _OF_A_FILE.match(line):
        return [line]
    whole = _QUOTED.sub(lambda quoted: quoted[0].replace(" ", _NO_BREAK), line)
    first = indent + whole[: len(whole) - len(whole.lstrip(" "))]
    cut = textwrap.wrap(
        whole.lstrip(" "),
        width,
        initial_indent=first,
        subsequent_indent=f"{first}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [part.replace(_NO_BREAK, " ") for part in cut] or [""]


def heading(line: str) -> None:
    """Print a heading of a result."""
    out.say((line, "bold"))


def result(line: str) -> None:
    """Print a line of a result."""
    out.say(line)


def sentence(line: str, indent: str = "  ") -> None:
    """Print a sentence of a result, wrapped at a terminal."""
    for part in wrapped(line, out.width, indent) if out.is_terminal else [f"{indent}{line}"]:
        out.say(part)


def can_ask() -> bool:
    """Whether stdin and stderr are a terminal, so that a person can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def share_a_place() -> bool:
    """Whether stdout and stderr are the same terminal, pipe or file, so that their lines mix."""
    try:
        ours, theirs = sys.stdout.fileno(), sys.stderr.fileno()
        if os.isatty(ours) and os.isatty(theirs):
            return True
        one, other = os.fstat(ours), os.fstat(theirs)
    except (OSError, ValueError):  # closed, or without a file descriptor
        return False
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def write(text: str) -> None:
    """Write a text to stdout: unchanged for a pipe, with control characters escaped for a terminal."""
    sys.stdout.write(with_visible_characters(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def write_document(text: str) -> None:
    """Write JSON or TOML to stdout. A pipe or file always gets UTF-8, as both formats require."""
    binary = getattr(sys.stdout, "buffer", None)  # a text in memory has none
    if binary is None or sys.stdout.isatty():
        write(text)
        return
    sys.stdout.flush()
    binary.write(text.encode(errors=REPLACING))
    binary.flush()


def _section(title: str, lines: Iterable[str]) -> None:
    lines = list(lines)
    if lines:
        out.say("\n", (title, "bold"))
    for line in lines:
        out.say(f"  {line}")


_SCHEMES: Final[Mapping[str, str]] = {
    "httpAuthSecurityScheme": "HTTP {scheme}",
    "apiKeySecurityScheme": "API key in {location} {name}",
    "oauth2SecurityScheme": "access token of OAuth 2.0",
    "openIdConnectSecurityScheme": "OpenID Connect at {openIdConnectUrl}",
    "mtlsSecurityScheme": "client certificate",
}
"""The security schemes of a card in words."""


def _security_lines(shown: AgentCard) -> Iterable[str]:
    from bridge.a2a.client.credentials import scheme_of  # imports the HTTP client, which few commands need

    for name, scheme in (shown.security_schemes or {}).items():
        kind, fields = scheme_of(scheme)
        words = _SCHEMES.get(kind, "a scheme that the card does not describe")
        given = {key: str(value) for key, value in fields.items() if isinstance(value, str)}
        given.setdefault("location", given.get("in", "header"))
        yield f"{name}: {words.format_map(defaultdict(str, given))}".rstrip()
    needed = [" and ".join(one.schemes) for one in shown.security_requirements or ()]
    if needed:
        yield f"needs {' or '.join(needed)}"


def _signature_lines(found: FoundCard) -> Iterable[str]:
    """Who has signed a card, and whether the signature is verified."""
    if (proof := found.proof) is not None:
        of_sdks = "" if proof.form == "strict" else ", in the form of the SDKs"
        yield f"verified: key {proof.key_id}{of_sdks}"
        if proof.outside:
            yield f"not signed, and not used: {', '.join(proof.outside)}"
    elif found.card.signatures:
        from bridge.a2a.wire.card_signatures import signers_in  # loads PyJWT, for few cards

        said = list(signers_in({"signatures": [one.to_object() for one in found.card.signatures]}))
        yield from (f"not verified: {one}" for one in said or ["no signature can be read"])
        yield "--signed-by FILE|URL verifies signatures"


def _skills(shown: AgentCard, arguments_of: Callable[[str], Iterable[str]]) -> None:
    out.say("\n", ("Skills", "bold"))
    for skill in shown.skills:
        name = f" {skill.name}" if skill.name != skill.id else ""
        tags = f" ({', '.join(skill.tags)})" if skill.tags else ""
        out.say("  ", (skill.id, "cyan"), name, (tags, "dim"))
        for line in skill.description.strip().splitlines():
            out.say(f"    {line}")
        for line in arguments_of(skill.id):
            out.say(f"      {line}")
        takes = _other_than(shown.default_input_modes, skill.input_modes)
        gives = _other_than(shown.default_output_modes, skill.output_modes)
        if takes or gives:
            out.say((f"    {takes or _AS_AGENT} -> {gives or _AS_AGENT}", "dim"))
        examples = sorted(skill.examples or (), key=lambda example: example.startswith("{"))
        for example in examples[:1]:  # the example that is easiest to type
            out.say(("    e.g.", "dim"), f" {example}")


def _other_than(defaults: Sequence[str], modes: Sequence[str] | None) -> str:
    return ", ".join(modes) if modes and set(modes) != set(defaults) else ""
