"""What the command line shows. The only module that knows how."""

from __future__ import annotations

import base64
import json
import mimetypes
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeGuard

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bridge.errors import UsageError

if TYPE_CHECKING:
    from pydantic import JsonValue

    from bridge.a2a.card import FoundCard
    from bridge.a2a.models import AgentCard, Artifact, JsonObject, Part, StreamResponse, TaskStatus
    from bridge.app import Bridge

err = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
out = Console(highlight=False, soft_wrap=True, emoji=False)

_UNSEEN: Final = {
    code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    for code in (*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
    if chr(code) not in "\n\t"
}
"""Characters that would steer a terminal, or turn its text around, and what is shown instead of them."""

_COLOURS: Final = {"completed": "green", "failed": "red", "rejected": "red", "canceled": "yellow"}
_NOT_IN_FILES: Final = re.compile(r"[^\w.-]+")


def serving(bridge: Bridge, host: str, port: int, public_url: str | None, *, needs_token: bool) -> None:
    """What is served, and how to call it."""
    base = f"{public_url or _url(host, port)}{bridge.path}"
    greeting, upstream = bridge.upstream.greeting, bridge.upstream
    if greeting is None or upstream.down is not None:
        err.print(f"[yellow]{escape(upstream.name)} is down:[/] {escape(upstream.down or '')}")
        err.print("It is tried again in the background; its skills appear on the card once it is up.")
    else:
        err.print(
            f"[bold]{escape(greeting.name)}[/] {escape(greeting.version)} [dim]({escape(str(upstream.target))})[/]"
        )
        skills = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
        for skill in bridge.agent.skills:
            skills.add_row(f"[cyan]{escape(skill.id)}[/]", escape(skill.description.partition("\n")[0][:90]))
        err.print(skills)
    err.print(f"[bold]Agent[/]  {base}")
    err.print(f"[bold]Card[/]   {base}/.well-known/agent-card.json")
    err.print(f"[bold]Tasks[/]  {escape(bridge.store)}")
    err.print("\nTry it:")
    err.print(f"  {escape(_curl(bridge, base, needs_token=needs_token))}", markup=False)


def draining() -> None:
    """The first Ctrl+C."""
    err.print("Stopping: running tasks may end. Press Ctrl+C again to stop them now.")


def _curl(bridge: Bridge, base: str, *, needs_token: bool) -> str:
    skills = bridge.agent.skills
    text = next(
        (example for skill in skills for example in skill.examples or () if not example.startswith("{")),
        "hello",
    )
    body = (
        '{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":'
        '{"messageId":"\'$RANDOM\'","role":"ROLE_USER","parts":[{"text":"' + _in_json(text) + '"}]}}}'
    )
    token = " -H 'Authorization: Bearer TOKEN'" if needs_token else ""
    return f"curl -s {base} -H 'A2A-Version: 1.0' -H 'Content-Type: application/json'{token} -d '{body}'"


def _in_json(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("'", "'\\''")


def _url(host: str, port: int) -> str:
    shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"


def card(found: FoundCard) -> None:
    """What an agent says of itself."""
    shown, capabilities = found.card, found.card.capabilities
    out.print(f"[bold]{plain(shown.name)}[/] {plain(shown.version)}")
    out.print(plain(shown.description))
    if shown.provider:
        out.print(f"by {plain(shown.provider.organization)} {plain(shown.provider.url)}")
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
    _section("Input", shown.default_input_modes)
    _section("Output", shown.default_output_modes)
    _skills(shown)


def deviations(found: FoundCard) -> None:
    """What in a card is not as the specification asks."""
    for deviation in found.deviations:
        err.print(f"[yellow]not as A2A 1.0 asks:[/] {plain(deviation)}")


def card_text(found: FoundCard) -> None:
    """A card as it was received, indented."""
    _write(json.dumps(json.loads(found.text), indent=2, ensure_ascii=False) + "\n")


def ask(line: str) -> str | None:
    """Ask a person at the terminal; None when they end the input instead (Ctrl+D).

    Not with `input`: it writes its prompt to stdout, which belongs to the results.
    """
    err.print(f"{plain(line)} ", end="")
    answer = sys.stdin.readline()
    if not answer:
        err.print()
        return None
    return answer.rstrip("\r\n")


def say(line: str) -> None:
    """One line for a person."""
    err.print(plain(line))


class CallView:
    """The events of a call: what becomes of the task on stderr, its results on stdout."""

    def __init__(self, *, json_lines: bool, save: Path | None) -> None:
        """`json_lines` writes the events themselves instead of results; `save` is where files go.

        Raises:
            UsageError: the folder cannot be made.
        """
        self._json_lines = json_lines
        self._save = save
        self._bar: Progress | None = None
        self._seen: set[str] = set()
        self._said_task = ""
        self._said_status: TaskStatus | None = None
        self._line_open = False
        self._result_shown = False
        if save is not None:
            try:
                save.mkdir(parents=True, exist_ok=True)
            except OSError as exc:
                raise UsageError(f"cannot save to {save}: {exc.strerror}") from exc

    def show(self, event: StreamResponse) -> None:
        """One event."""
        if self._json_lines:
            _write(event.to_json().decode() + "\n")
        if event.task is not None:
            self._task_id(event.task.id)
            for artifact in event.task.artifacts or ():
                if artifact.artifact_id not in self._seen:
                    self._artifact(artifact, goes_on=False)
            if event.task.status != self._said_status:
                self._status(event.task.status, None)
        elif event.status_update is not None:
            self._task_id(event.status_update.task_id)
            self._status(event.status_update.status, event.status_update.metadata)
        elif event.artifact_update is not None:
            self._artifact(event.artifact_update.artifact, goes_on=bool(event.artifact_update.append))
        elif event.message is not None:
            self._results(event.message.parts)

    def left(self, task_id: str) -> None:
        """The task that is left to itself: its id is the result."""
        if not self._json_lines:
            _write(f"{task_id}\n")

    def unanswered(self) -> None:
        """Nobody is there to answer what was asked."""
        err.print("The agent waits for an answer, and there is no terminal to ask for it.")

    def not_canceled(self, task_id: str, reason: str) -> None:
        """The task may go on, though nobody waits for it."""
        err.print(f"[yellow]task {plain(task_id)} could not be canceled:[/] {plain(reason)}")

    def settle(self) -> None:
        """Leave both streams at the beginning of a line."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        if self._line_open:
            _write("\n")
            self._line_open = False

    def _task_id(self, task_id: str) -> None:
        if task_id != self._said_task:
            self._said_task = task_id
            self._say(f"[dim]task {plain(task_id)}[/]")

    def _status(self, status: TaskStatus, metadata: JsonObject | None) -> None:
        self._said_status = status
        word = status.state.value.removeprefix("TASK_STATE_").replace("_", " ").lower()
        parts = status.message.parts if status.message else ()
        if status.state.name == "COMPLETED" and not self._result_shown:
            self._say(f"[green]{word}[/]")
            self._results(parts)  # an agent that answers with its last word instead of an artifact
            return
        words = "\n".join(self._notes(parts, with_data=not word.startswith("input")))
        numbers = progress_in(metadata)
        if numbers is not None and err.is_terminal:
            self._move_bar(*numbers, words.partition("\n")[0])
            return
        step = f" {numbers[0]:g}{f'/{numbers[1]:g}' if numbers[1] else ''}" if numbers else ""
        colour = _COLOURS.get(word, "cyan")
        self._say(f"[{colour}]{word}[/]{step}{f': {plain(words)}' if words else ''}")

    def _say(self, markup: str) -> None:
        if self._bar is not None or (self._line_open and sys.stdout.isatty()):
            self.settle()
        err.print(markup)

    def _move_bar(self, progress: float, total: float | None, words: str) -> None:
        if self._bar is None:
            if sys.stdout.isatty():
                self.settle()
            columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, console=err, redirect_stdout=False, redirect_stderr=False)
            self._bar.add_task("")
            self._bar.start()
        bar = self._bar.tasks[0]
        said = words.translate(_UNSEEN) or bar.description
        self._bar.update(bar.id, completed=progress, total=total, description=said)

    def _artifact(self, artifact: Artifact, *, goes_on: bool) -> None:
        self._seen.add(artifact.artifact_id)
        self._results(artifact.parts, goes_on=goes_on)

    def _results(self, parts: Sequence[Part], *, goes_on: bool = False) -> None:
        """Parts as results. A text that goes on continues the line that the last one left open."""
        if self._bar is not None:
            self.settle()
        for part in parts:
            self._result_shown = True
            kept = self._kept(part)
            if self._json_lines or _repeats_data(part, parts):
                continue
            if self._line_open and not (goes_on and part.kind == "text"):
                _write("\n")
            text = kept or _words(part)
            _write(text)
            self._line_open = not text.endswith("\n")
            goes_on = False

    def _notes(self, parts: Sequence[Part], *, with_data: bool) -> Iterable[str]:
        """The parts of a message as lines. The form of a question is left out when there are words for it."""
        worded = any(part.text is not None for part in parts)
        for part in parts:
            if (part.kind != "data" or with_data or not worded) and not _repeats_data(part, parts):
                yield self._kept(part) or _words(part)

    def _kept(self, part: Part) -> str | None:
        """Where a file was saved; None when the part is none, or files are not saved."""
        if self._save is None or part.raw is None:
            return None
        return str(_written(base64_bytes(part.raw), _file_name(part), self._save))


def plain(text: str) -> str:
    """A peer's text for a terminal: it neither steers it nor is read as markup."""
    return escape(text.translate(_UNSEEN))


def progress_in(metadata: JsonObject | None) -> tuple[float, float | None] | None:
    """The numbers of a progress report in a status update's metadata."""
    from bridge.translate.extension import PROGRESS  # here, as it imports the MCP SDK

    found = (metadata or {}).get(PROGRESS)
    progress, total = (found.get("progress"), found.get("total")) if isinstance(found, dict) else (None, None)
    if not _is_number(progress):
        return None
    return progress, total if _is_number(total) else None


def _is_number(value: JsonValue) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def base64_bytes(text: str) -> bytes:
    """The bytes behind either alphabet of base64, padded or not."""
    return base64.urlsafe_b64decode(text.replace("+", "-").replace("/", "_").rstrip("=") + "==")


def _words(part: Part) -> str:
    """A part as text."""
    if part.text is not None:
        return part.text
    if part.url is not None:
        return part.url
    if part.raw is not None:
        name = f"{part.filename}, " if part.filename else ""
        size = len(base64_bytes(part.raw))
        return f"[{name}{part.media_type or 'a file'}, {size} bytes: --save DIR keeps it]"
    return json.dumps(part.data, indent=2, ensure_ascii=False)


def _repeats_data(part: Part, parts: Sequence[Part]) -> bool:
    """Whether a text is the JSON of a data part beside it, for those who cannot read that."""
    if part.text is None or not part.text.lstrip().startswith(("{", "[")):
        return False
    try:
        value = json.loads(part.text)
    except ValueError:
        return False
    return any(other.kind == "data" and other.data == value for other in parts)


def _file_name(part: Part) -> str:
    """A name that leads nowhere else, whatever the agent says."""
    said = _NOT_IN_FILES.sub("_", Path((part.filename or "").replace("\\", "/")).name).lstrip(".")[-100:]
    media_type = (part.media_type or "").partition(";")[0].strip()
    subtype = re.fullmatch(r"\w+/(?:x-)?([a-z0-9]{1,8})", media_type)
    suffix = mimetypes.guess_extension(media_type) or (f".{subtype[1]}" if subtype else ".bin")
    return said or f"artifact{suffix}"


def _written(content: bytes, name: str, folder: Path) -> Path:
    """The file that was written; one that is there already is left alone."""
    stem, suffix, number = Path(name).stem, Path(name).suffix, 1
    while True:
        path = folder / (name if number == 1 else f"{stem}-{number}{suffix}")
        try:
            with path.open("xb") as file:
                file.write(content)
        except FileExistsError:
            number += 1
        except OSError as exc:
            raise UsageError(f"cannot save {path}: {exc.strerror}") from exc
        else:
            return path


def _write(text: str) -> None:
    """To stdout: exactly as it is for a pipe, harmless for a terminal."""
    sys.stdout.write(text.translate(_UNSEEN) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def _section(title: str, lines: Iterable[str]) -> None:
    lines = list(lines)
    if lines:
        out.print(f"\n[bold]{title}[/]")
    for line in lines:
        out.print(f"  {plain(line)}")


def _security_lines(shown: AgentCard) -> Iterable[str]:
    for name, scheme in (shown.security_schemes or {}).items():
        for kind, details in scheme.items():
            said = details if isinstance(details, Mapping) else {}
            words = [
                str(said[key]) for key in ("scheme", "location", "name", "openIdConnectUrl") if key in said
            ]
            yield " ".join([f"{name}:", kind.removesuffix("SecurityScheme"), *words])
    needed = [" and ".join(one.schemes) for one in shown.security_requirements or ()]
    if needed:
        yield f"needs {' or '.join(needed)}"


def _skills(shown: AgentCard) -> None:
    out.print("\n[bold]Skills[/]")
    for skill in shown.skills:
        name = f" {plain(skill.name)}" if skill.name != skill.id else ""
        tags = f" [dim]({plain(', '.join(skill.tags))})[/]" if skill.tags else ""
        out.print(f"  [cyan]{plain(skill.id)}[/]{name}{tags}")
        for line in skill.description.strip().splitlines():
            out.print(f"    {plain(line)}")
        if skill.input_modes or skill.output_modes:
            takes, gives = ", ".join(skill.input_modes or ()), ", ".join(skill.output_modes or ())
            out.print(f"    [dim]{plain(takes or 'as the agent')} -> {plain(gives or 'as the agent')}[/]")
        for example in skill.examples or ():
            out.print(f"    [dim]e.g.[/] {plain(example)}")
