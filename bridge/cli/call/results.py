"""The output of a call: the states of the task on stderr, its results on stdout.

If both are the same terminal, pipe or file, other output begins on a new line. `repeats.py` finds the parts of a result
that only repeat others.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeGuard

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from bridge.cli.call.questions import is_question
from bridge.cli.call.repeats import ShownParts
from bridge.cli.render import can_ask, err, share_a_place, write, write_document
from bridge.errors import UsageError, counted
from bridge.local.file_names import named_by_type, safe_file_name
from bridge.text.safe_text import with_visible_characters

if TYPE_CHECKING:
    from pydantic import JsonValue

    from bridge.a2a.model.objects import AgentCard, Artifact, Part, StreamResponse, TaskStatus
    from bridge.text.jsonvalues import JsonObject

_COLOURS: Final = {"completed": "green", "failed": "red", "rejected": "red", "canceled": "yellow"}
_STEM: Final = "artifact"
"""The name of a file when neither the file nor its artifact has one."""


class CallView:
    """Shows the events of a call."""

    def __init__(self, *, json_lines: bool, id_only: bool, save: Path | None) -> None:
        """With `json_lines`, write the events as JSON and nothing for a person. With `id_only`, write no results of a
        task. `save` is the folder for files.

        Raises:
            UsageError: the folder cannot be made.
        """
        self._json_lines = json_lines
        self._id_only = id_only
        self._save = save
        self._bar: Progress | None = None
        self._shown: dict[str, ShownParts] = {}
        """The shown parts of each artifact, by its id."""
        self._shown_task = ""
        self._shown_status: TaskStatus | None = None
        self._line_open = False
        self._has_result = False
        if save is not None:
            try:
                save.mkdir(parents=True, exist_ok=True)
            except OSError as exc:
                raise UsageError(f"cannot save to {save}: {exc.strerror}") from exc

    def show(self, event: StreamResponse) -> None:
        """Show one event."""
        if self._json_lines:
            write_document(event.to_json().decode() + "\n")
        if event.task is not None:
            self._task_id(event.task.id)
            for artifact in event.task.artifacts or ():
                self._artifact_of_task(artifact)
            if event.task.status != self._shown_status:
                self.status(event.task.status)
        elif event.status_update is not None:
            self._task_id(event.status_update.task_id)
            self.status(event.status_update.status, event.status_update.metadata)
        elif event.artifact_update is not None:
            self._artifact(event.artifact_update.artifact, goes_on=bool(event.artifact_update.append))
        elif event.message is not None:
            self.results(event.message.parts)

    def skills(self, card: AgentCard) -> None:
        """Show the skills of an agent, one line each, or as JSON."""
        if self._json_lines:
            for skill in card.skills:
                write_document(skill.to_json().decode() + "\n")
            return
        width = max((len(skill.id) for skill in card.skills), default=0)
        for skill in card.skills:
            words = next(iter((skill.description or skill.name).strip().splitlines()), "")
            write(f"{skill.id:{width}}  {words}".rstrip() + "\n")
        if not card.skills:
            write("no skills: --text sends a text\n")

    def left(self, task_id: str) -> None:
        """Show the id of a task whose end is not awaited."""
        if self._has_result:
            self._say("The agent keeps the result: --no-wait prints only the id of the task.")
        if not self._json_lines:
            write(f"{task_id}\n")

    def unanswered(self, reason: str, command: str, how_declined: str) -> None:
        """Say that nobody can answer the question, and which command would answer it."""
        decline = f" (--decline instead of an answer {how_declined})"
        self._fault(f"The task waits for an answer, and {reason}. To answer it{decline}:\n{command}")

    def declined(self) -> None:
        """Say that the person declined, and that the agent cannot be told."""
        self._say(
            "You declined. The agent does not define how a client declines, so the task is canceled instead."
        )

    def unasked(self) -> None:
        """Say that nobody can answer a tool's question, so that its call was cancelled."""
        self._fault(
            "The tool waits for an answer, and there is no terminal to ask for it: the call was cancelled."
        )

    def message(self, message: JsonObject) -> None:
        """Show one message of a tool server, in JSON output only."""
        if self._json_lines:
            write_document(json.dumps(message, ensure_ascii=False) + "\n")

    def hop(self, protocol: str, direction: str, text: str) -> None:
        """Show a message on the wire in one line. The line ends between its JSON tokens have no meaning."""
        self._fault(f"{protocol} {direction} {' '.join(text.splitlines())}")

    def not_canceled(self, task_id: str, reason: str) -> None:
        """Say that the task was not cancelled and may go on."""
        self._fault((f"task {task_id} could not be canceled:", "yellow"), f" {reason}")

    def settle(self) -> None:
        """Leave both streams at the beginning of a line."""
        self._end_bar()
        if self._line_open:
            write("\n")
            self._line_open = False

    def _end_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _task_id(self, task_id: str) -> None:
        if task_id != self._shown_task:
            self._shown_task = task_id
            self._say((f"task {task_id}", "dim"))

    def status(self, status: TaskStatus, metadata: JsonObject | None = None) -> None:
        """Show the state of a task, or of a tool call. `metadata` may hold its progress."""
        self._shown_status = status
        word = status.state.value.removeprefix("TASK_STATE_").replace("_", " ").lower()
        parts = status.message.parts if status.message else ()
        if status.state.name == "COMPLETED" and not self._has_result:
            self._say((word, "green"))
            self.results(parts)  # an agent may give its result in the last message instead of an artifact
            return
        words = "\n".join(self._notes(parts, with_data=not word.startswith("input")))
        numbers = progress_in(metadata)
        if numbers is not None and err.is_terminal and not self._json_lines:
            self._move_bar(*numbers, words.partition("\n")[0])
            return
        step = f" {numbers[0]:g}{f'/{numbers[1]:g}' if numbers[1] else ''}" if numbers else ""
        line = (word, _COLOURS.get(word, "cyan")), f"{step}{f': {words}' if words else ''}"
        if self._json_lines and word.endswith("required") and can_ask():
            self._fault(*line)  # the person must see the question
        else:
            self._say(*line)

    def _say(self, *words: str | tuple[str, str]) -> None:
        if not self._json_lines:
            self._fault(*words)

    def _fault(self, *words: str | tuple[str, str]) -> None:
        """Show a message, also beside JSON output."""
        self._end_bar()
        if share_a_place():
            self.settle()
        for line in _lines_of(words):
            err.say(*line)

    def _move_bar(self, progress: float, total: float | None, words: str) -> None:
        if self._bar is None:
            if share_a_place():
                self.settle()
            columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, console=err, redirect_stdout=False, redirect_stderr=False)
            self._bar.add_task("")
            self._bar.start()
        bar = self._bar.tasks[0]
        text = with_visible_characters(words) or bar.description
        self._bar.update(bar.id, completed=progress, total=total, description=text)

    def _artifact_of_task(self, artifact: Artifact) -> None:
        """Show the parts of a task's artifact that were not received yet, for example after a broken stream."""
        shown = self._shown.get(artifact.artifact_id)
        rest = shown.beyond(artifact.parts) if shown is not None else None
        if rest is None:
            self._artifact(artifact, goes_on=False)
        elif rest:
            self._artifact(artifact.changed(parts=rest), goes_on=True)

    def _artifact(self, artifact: Artifact, *, goes_on: bool) -> None:
        shown = self._shown.get(artifact.artifact_id) if goes_on else None
        shown = self._shown[artifact.artifact_id] = shown or ShownParts()
        shown.receive(artifact.parts)
        self.results(artifact.parts, shown, artifact.name or "", goes_on=goes_on)

    def results(
        self, parts: Sequence[Part], shown: ShownParts | None = None, name: str = "", *, goes_on: bool = False
    ) -> None:
        """Show parts as results. With `goes_on`, a text continues the open line."""
        self._end_bar()
        shown = shown or ShownParts()
        repeated = shown.repeated_in(parts, goes_on=goes_on)
        for part in parts:
            self._has_result = True
            if goes_on and self._continues_file(part, shown):
                goes_on = False
                continue
            kept = self._saved(part, name, shown)
            if self._json_lines or part in repeated or (self._id_only and self._shown_task):
                continue
            if self._line_open and not (goes_on and part.kind == "text"):
                write("\n")
            text = kept or _words(part)
            write(text)
            self._line_open = not text.endswith("\n")
            goes_on = False

    def _notes(self, parts: Sequence[Part], *, with_data: bool) -> Iterable[str]:
        """The parts of a message as lines. The form of a question is left out if there is a text."""
        has_text = any(part.text is not None for part in parts)
        repeated = ShownParts().repeated_in(parts)
        for part in parts:
            shown = with_data and not is_question(part.data)
            if (part.kind != "data" or shown or not has_text) and part not in repeated:
                yield self._saved(part) or _words(part)

    def _saved(self, part: Part, name: str = "", shown: ShownParts | None = None) -> str | None:
        """Save a file and return its path; None if the part is not a file, or files are not saved."""
        content = _file_content(part)
        if self._save is None or content is None:
            return None
        path = _written(content, _file_name(part, name), self._save)
        if shown is not None and part.text is not None:
            shown.saved = part.filename or "", path
        return str(path)

    def _continues_file(self, part: Part, shown: ShownParts) -> bool:
        """If a text continues the file that was saved last, append it, and return True."""
        if self._save is None or part.text is None or shown.saved is None or shown.saved[0] != part.filename:
            return False
        _append(part.text.encode(errors="replace"), shown.saved[1])
        return True


def progress_in(metadata: JsonObject | None) -> tuple[float, float | None] | None:
    """The numbers of a progress report in a status update's metadata."""
    from bridge.translate.extensions.bridge import PROGRESS  # imported here, because it imports the MCP SDK

    found = (metadata or {}).get(PROGRESS)
    progress, total = (found.get("progress"), found.get("total")) if isinstance(found, dict) else (None, None)
    if not _is_number(progress):
        return None
    return progress, total if _is_number(total) else None


def _is_number(value: JsonValue) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def base64_bytes(text: str) -> bytes:
    """The bytes of base64 in either alphabet, with or without padding."""
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
        return f"[{name}{part.media_type or 'a file'}, {counted(size, 'byte')}: --save DIR keeps it]"
    return json.dumps(part.data, indent=2, ensure_ascii=False)


def _file_content(part: Part) -> bytes | None:
    """The content of a part that is a file: bytes, or a text or data with a file name; None for any other part."""
    if part.raw is not None:
        return base64_bytes(part.raw)
    if not part.filename or part.url is not None:
        return None
    return _words(part).encode(errors="replace")


def _file_name(part: Part, artifact: str) -> str:
    """A safe file name: the file's or its artifact's name, without a path that the agent may have given."""
    media_type = part.media_type or ""
    return (
        safe_file_name(part.filename or "")
        or named_by_type(artifact, media_type)
        or named_by_type(_STEM, media_type)
    )


def _lines_of(words: Sequence[str | tuple[str, str]]) -> Iterator[list[str | tuple[str, str]]]:
    """Split words of a line at their line breaks. Lines after the first are indented."""
    line: list[str | tuple[str, str]] = []
    for word in words:
        text, style = (word, "") if isinstance(word, str) else word
        for place, part in enumerate(text.splitlines() or [""]):
            if place:
                yield line
                line = ["    "]
            line.append((part, style))
    yield line


def _written(content: bytes, name: str, folder: Path) -> Path:
    """Write a file under an unused name, and return its path."""
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


def _append(content: bytes, path: Path) -> None:
    """Append to a file."""
    try:
        with path.open("ab") as file:
            file.write(content)
    except OSError as exc:
        raise UsageError(f"cannot save {path}: {exc.strerror}") from exc
