"""One call of a tool as the work of a task: the page to read.

The task says WORKING once it is the tool's turn, then what the tool reports, then its result as one artifact,
then how it ended. A tool that fails is a task that FAILED, with all that the tool said.

Cancelling this cancels the call on the server: the SDK says so on the wire before the cancellation goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import anyio
from pydantic import JsonValue

from bridge.a2a.job import Job
from bridge.a2a.models import Artifact, Part, TaskState
from bridge.errors import PeerError
from bridge.jsonvalues import JsonObject
from bridge.mcp.faults import ServerRefusedError
from bridge.mcp.upstream import Upstream
from bridge.mcp.wire import Progress
from bridge.tools_as_agent.options import AgentOptions
from bridge.tools_as_agent.route import Ask, End, RunTool
from bridge.translate.content import LinkRules, links_to_read, parts_from_result, peer_metadata
from bridge.translate.extension import PEER, QUESTION, SKILL, URI
from bridge.translate.faults import error_metadata, parts_of_failure, state_of_error
from bridge.translate.notes import progress_metadata, unaccepted_types

logger = logging.getLogger(__name__)

_EXACT: Final = 2**53
"""Up to here a float holds every whole number exactly."""

_ASKS: Final = "The tool asked for something that this bridge cannot pass on yet, so the call was given up"


class ToolRun:
    """Runs the tool that a turn asked for. Made with a reserved place on its server, which it gives back."""

    def __init__(self, decision: RunTool, upstream: Upstream, options: AgentOptions) -> None:
        self._decision = decision
        self._upstream = upstream
        self._options = options

    async def __call__(self, job: Job) -> None:
        """Take the turn from WORKING to its end."""
        try:
            await job.accepted
            async with self._upstream.turn():
                if job.turn.task is None:
                    job.status(TaskState.WORKING)
                await self._run(job)
        finally:
            self._upstream.release()

    async def _run(self, job: Job) -> None:
        progress, result = _ProgressRelay(job, self._options.progress_in_flight), None
        arguments = {name: _whole(value) for name, value in self._decision.arguments.items()}
        with anyio.move_on_after(self._options.call_timeout_seconds):
            try:
                result = await self._upstream.call(self._decision.tool.name, arguments, progress)
            except ServerRefusedError as exc:
                progress.flush()
                return await self._refused(job, exc)
            except PeerError as exc:
                progress.flush()
                return await self._end(job, TaskState.FAILED, (Part(text=str(exc)),))
        progress.flush()
        if result is None:
            words = f"The tool gave no answer in {self._options.call_timeout_seconds:g} s and was cancelled"
            return await self._end(job, TaskState.FAILED, (Part(text=words),))
        return await self._finish(job, result, await self._linked(result, job))

    async def _finish(self, job: Job, result: JsonObject, read: dict[str, Sequence[JsonValue]]) -> None:
        if result.get("resultType", "complete") != "complete":
            return await self._end(job, TaskState.FAILED, (Part(text=_ASKS),))
        links = LinkRules(URI in job.turn.extensions, self._options.allow_file_links, read)
        parts = parts_from_result(result, links)
        metadata: JsonObject = {SKILL: self._decision.skill_id}
        if peer := peer_metadata(result):
            metadata[PEER] = peer
        if result.get("isError") is True:
            return await self._end(job, TaskState.FAILED, parts_of_failure(parts), metadata)
        if parts:
            job.artifact(
                Artifact(
                    artifact_id=job.new_id(), name=self._decision.skill_id, parts=parts, metadata=metadata
                )
            )
        return await self._end(job, TaskState.COMPLETED, _note_on(parts, job))

    async def _refused(self, job: Job, exc: ServerRefusedError) -> None:
        metadata = error_metadata(exc.code, str(exc), exc.data)
        await self._end(job, state_of_error(exc.code), (Part(text=str(exc)),), metadata)

    async def _end(
        self, job: Job, state: TaskState, parts: Sequence[Part], metadata: JsonObject | None = None
    ) -> None:
        message = job.message(parts, metadata) if parts else None
        await job.status(state, message, keep=b"")

    async def _linked(self, result: JsonObject, job: Job) -> dict[str, Sequence[JsonValue]]:
        """What stands behind the links that the client could not open by itself, as far as it can be read."""
        content = result.get("content")
        if URI in job.turn.extensions or not isinstance(content, list):
            return {}
        read: dict[str, Sequence[JsonValue]] = {}
        # The tool has done its work: links that take too long are passed on as they are.
        with anyio.move_on_after(self._options.call_timeout_seconds):
            for uri in links_to_read(content):
                try:
                    contents = await self._upstream.read(uri)
                except PeerError as exc:
                    logger.info("the link %s of %s cannot be read: %s", uri, self._decision.skill_id, exc)
                    continue
                if _size_of(contents) <= self._options.inline_limit_bytes:
                    read[uri] = contents
        return read


class Question:
    """Asks the client, and leaves the task waiting."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def __call__(self, job: Job) -> None:
        """Set the task to INPUT_REQUIRED."""
        message = job.message(self._ask.parts, {QUESTION: self._ask.key})
        await job.status(TaskState.INPUT_REQUIRED, message, keep=self._ask.kept)


class Conclusion:
    """Ends the task without running anything."""

    def __init__(self, end: End) -> None:
        self._end = end

    async def __call__(self, job: Job) -> None:
        """Set the task to its end."""
        await job.status(self._end.state, job.message((Part(text=self._end.words),)), keep=b"")


class _ProgressRelay:
    """Progress as status updates, in order. A flood is thinned, and its last is never lost."""

    def __init__(self, job: Job, in_flight: int) -> None:
        self._job = job
        self._most = in_flight
        self._in_flight = 0
        self._newest: Progress | None = None

    def __call__(self, progress: Progress) -> None:
        self._newest = progress
        if self._in_flight < self._most:
            self.flush()

    def flush(self) -> None:
        """Say what still waits to be said."""
        if self._newest is None:
            return
        progress, self._newest = self._newest, None
        message = self._job.message((Part(text=progress.message),)) if progress.message else None
        self._in_flight += 1
        commit = self._job.status(TaskState.WORKING, message, metadata=progress_metadata(progress))
        commit.when_settled(self._stored)

    def _stored(self) -> None:
        self._in_flight -= 1
        self.flush()


def _whole(value: JsonValue) -> JsonValue:
    """A value with its whole numbers written as such.

    JSON has one kind of number. A2A clients on protocol buffers write 3 as 3.0, which servers that take an
    integer may refuse.
    """
    match value:
        case float() if value.is_integer() and abs(value) <= _EXACT:
            return int(value)
        case dict():
            return {name: _whole(inner) for name, inner in value.items()}
        case list():
            return [_whole(inner) for inner in value]
        case _:
            return value


def _note_on(parts: Sequence[Part], job: Job) -> tuple[Part, ...]:
    """Says which media types were delivered although the client did not name them."""
    extra = unaccepted_types(parts, job.turn.configuration.accepted_output_modes or ())
    return (Part(text=f"The result also holds {', '.join(extra)}"),) if extra else ()


def _size_of(contents: Sequence[JsonValue]) -> int:
    texts = (item.get("text") or item.get("blob") for item in contents if isinstance(item, dict))
    return sum(len(text) for text in texts if isinstance(text, str))
