"""Runs one call of a tool as the work of a task. Start reading here.

The task is WORKING once the call has a slot. Then come the tool's progress reports, its result as one artifact, and the
final state. If the tool fails, the task is FAILED, with the tool's whole output.

A question of the server goes to the client. If the call stays open (MCP 2025-11-25, and tasks of the server), the run
waits for the answer. If the call ended and is made again with the answer (2026-07-28), the run ends: the state for the
next turn is kept with the task, and nothing stays in memory.

Cancelling the run cancels the call on the server: notifications/cancelled is sent before the cancellation takes effect.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import anyio
from pydantic import JsonValue

from bridge.a2a.model.objects import Artifact, Part, TaskState, made
from bridge.a2a.tasks.agent import Job
from bridge.errors import BusyError, PeerError, fault_policy_of
from bridge.identity.callers.principals import ANONYMOUS, LOCAL
from bridge.identity.tokens.caller_token import CallerToken
from bridge.mcp.client.call_queue import CallQueue
from bridge.mcp.client.faults import ServerRefusedError
from bridge.mcp.client.server_tasks import TaskCancelledError
from bridge.mcp.client.session import resource_of
from bridge.mcp.client.upstream import Upstream
from bridge.mcp.tools import StandInKind
from bridge.text.jsonvalues import JsonObject, json_bytes
from bridge.tools_as_agent.bridge_notes import message_with_notes, notes_of
from bridge.tools_as_agent.options import AgentOptions
from bridge.tools_as_agent.progress import ProgressRelay
from bridge.tools_as_agent.resume_state import End, Follow, RequireInput, RunTool
from bridge.tools_as_agent.rounds import CallInRounds
from bridge.tools_as_agent.task_asker import PausableDeadline
from bridge.translate.content import LinkRules, Repeated, links_to_read, parts_from_result, peer_metadata
from bridge.translate.extensions.bridge import PEER, SKILL, URI
from bridge.translate.extensions.log_messages import level_asked
from bridge.translate.extensions.passed_metadata import extensions_in, metadata_of
from bridge.translate.outcome import (
    error_metadata,
    parts_for_metadata,
    parts_of_failure,
    repeated_for,
    state_of_error,
    unaccepted_types,
)

if TYPE_CHECKING:
    from bridge.tools_as_agent.log_relay import LogRelay

logger = logging.getLogger(__name__)


class ToolRun:
    """Runs the tool that a turn asked for. Call `Upstream.reserve` before; the run calls `release`."""

    def __init__(
        self,
        decision: RunTool | Follow,
        upstream: Upstream,
        options: AgentOptions,
        principal: str,
        limiter: anyio.CapacityLimiter | None = None,
    ) -> None:
        """`principal` is the caller, for whom `Upstream.reserve` has reserved a place. `limiter` limits the concurrent
        calls of the skill. The run keeps these values to its end, even if the agent's options change meanwhile."""
        self._decision = decision
        self._upstream = upstream
        self._options = options
        self._principal = principal
        self._limiter = limiter
        self._call: CallInRounds | None = None

    async def __call__(self, job: Job) -> None:
        """Run the tool, until the task ends or asks."""
        self._begin(job)
        try:
            async with self._upstream.queue(job.turn.principal.name, job.events.context_id) as queue:
                await self._run(job, queue)
        except (PeerError, BusyError) as exc:
            await self._fail(job, exc)
        finally:
            self.drop()

    def _begin(self, job: Job) -> None:
        if isinstance(self._decision, Follow):
            activated = job.turn.extensions | frozenset(self._decision.task.extensions)
            job.turn = replace(job.turn, extensions=activated)
        elif self._decision.skill.tool.is_repeatable:
            job.allow_repeats()

    async def _fail(self, job: Job, exc: PeerError | BusyError) -> None:
        """End the task, since the call gave no result."""
        telling = fault_policy_of(exc)
        logger.log(telling.log_level, "a call of %s failed: %s", self._decision.skill_id, exc)
        await self._end(job, TaskState(telling.task_state), _in_words(str(exc)))

    def drop(self) -> None:
        """Release what `Upstream.reserve` reserved. Call this if the run is not started."""
        self._upstream.release(self._principal)

    async def _run(self, job: Job, queue: CallQueue, token: CallerToken | None = None) -> None:
        """Make the call in a session. `token` is the token of the caller in whose name the server is called."""
        patience = PausableDeadline(self._options.run.call_timeout_seconds)
        progress = ProgressRelay(job, self._options, patience)
        logs = self._log_relay(job, patience)
        call = self._call = CallInRounds(
            job,
            queue,
            self._decision,
            self._options,
            patience,
            self._limiter,
            is_process=self._upstream.is_process,
            token=token,
            log_sink=None if logs is None else logs.sink,
        )
        match await _outcome(call, progress, logs, patience):
            case _ if call.gave_up:
                await self._end(job, TaskState.FAILED, _in_words(call.gave_up))
            case ServerRefusedError() as refusal:
                metadata = error_metadata(refusal.code, str(refusal), refusal.data)
                await self._end(job, state_of_error(refusal.code), _in_words(str(refusal)), metadata)
            case TaskCancelledError() as cancelled:
                await self._end(job, TaskState.CANCELED, _in_words(str(cancelled)))
            case None:
                words = f"The tool gave no answer in {patience.seconds:g} s and was cancelled"
                await self._end(job, TaskState.FAILED, _in_words(words))
            case RequireInput() as ask:
                await InputRequest(ask, is_all=False)(job)
            case {"resultType": kind} if kind != "complete":
                words = f"The server gave a result of a kind that is not known here: {str(kind)[:50]!r}"
                await self._end(job, TaskState.FAILED, _in_words(words))
            case result:
                await self._finish(job, result, await self._linked(result, job, queue))

    def _log_relay(self, job: Job, patience: PausableDeadline) -> LogRelay | None:
        """The relay of the call's log messages, if the agent shares them and the client asks for them."""
        turn = job.turn
        if not self._options.shares_logs:
            return None
        level = level_asked(turn.message, turn.metadata, turn.extensions)
        if level is None:
            return None
        # Imported only if a client wants log messages.
        from bridge.tools_as_agent.log_relay import LogRelay

        has_own_session = self._upstream.has_own_sessions or self._upstream.is_called_for_callers
        is_sole = has_own_session or turn.principal.name in (LOCAL.name, ANONYMOUS.name)
        return LogRelay(job, self._options, patience, level, is_sole=is_sole)

    async def _finish(self, job: Job, result: JsonObject, read: dict[str, Sequence[JsonValue]]) -> None:
        is_active, allow_file = URI in job.turn.extensions, self._options.content.allow_file_links
        links = LinkRules(is_active, allow_file, read, self._address_in(job))
        is_error = result.get("isError") is True
        parts = self._parts(result, links, _repeated(job, is_error=is_error))
        metadata: JsonObject = {SKILL: self._decision.skill_id}
        peer = peer_metadata(result)
        if peer:
            metadata[PEER] = peer
        active = [
            extension.uri for extension in self._options.extensions if extension.uri in job.turn.extensions
        ]
        about = metadata_of(active, _meta_of(peer))
        metadata |= about
        used = extensions_in(active, about)
        if is_error:
            return await self._end(job, TaskState.FAILED, parts_of_failure(parts), metadata, used)
        is_told = bool(used) or (bool(peer) and URI in job.turn.extensions)
        if parts or is_told:
            job.artifact(
                made(
                    Artifact,
                    artifact_id=job.new_id(),
                    name=self._decision.skill_id,
                    parts=parts or parts_for_metadata(),
                    metadata=metadata,
                    extensions=used or None,
                )
            )
        return await self._end(job, TaskState.COMPLETED, _note_on(parts, job))

    def _parts(self, result: JsonObject, links: LinkRules, repeated: Repeated) -> tuple[Part, ...]:
        if not self._stands_for("prompts"):
            return parts_from_result(result, links, repeated)
        # Imported only by an agent whose prompts are skills.
        from bridge.translate.prompt_messages import parts_of_messages

        return parts_of_messages(result, links)

    def _address_in(self, job: Job) -> Callable[[JsonObject], str | None] | None:
        """Gives the address at which the bridge serves a link of the result; None if it serves none."""
        if (links := self._options.links) is None:
            return None
        decision = self._decision
        return links.addresses_for(
            job.turn.principal.name, job.events.context_id, decision.source_key, decision.skill_id
        )

    def _stands_for(self, kind: StandInKind) -> bool:
        stands_for = self._decision.skill.tool.stands_for if isinstance(self._decision, RunTool) else None
        return stands_for is not None and stands_for.kind == kind

    async def _end(
        self,
        job: Job,
        state: TaskState,
        parts: Sequence[Part],
        metadata: JsonObject | None = None,
        extensions: tuple[str, ...] = (),
    ) -> None:
        missed = self._call.missed if self._call else None
        says = parts or notes_of(job, missed)
        message = message_with_notes(job, parts, metadata, missed) if says else None
        if message is not None and extensions:
            message = message.changed(extensions=extensions)
        await job.status(state, message, keep=b"")

    async def _linked(self, result: JsonObject, job: Job, queue: CallQueue) -> dict[str, Sequence[JsonValue]]:
        """The contents of links that the client could not open itself, as far as they can be read."""
        content = result.get("content")
        if URI in job.turn.extensions or not isinstance(content, list):
            return {}
        if self._options.links is not None or self._stands_for("resources"):
            return {}  # the client reads the links that it wants, such as those that a search has found
        if not (links := links_to_read(content)):
            return {}
        read: dict[str, Sequence[JsonValue]] = {}
        left_bytes = self._options.content.links_limit_bytes
        # The tool has done its work: links that take too long, or are too large, are passed on as links.
        with anyio.move_on_after(self._options.run.call_timeout_seconds):
            for uri, times in islice(links.items(), self._options.content.links_most):
                try:
                    contents = await resource_of(queue.session, uri)
                except PeerError as exc:
                    logger.info("the link %s from %s cannot be read: %s", uri, self._decision.skill_id, exc)
                    continue
                size = len(json_bytes(contents))
                if size <= self._options.content.inline_limit_bytes and size * times <= left_bytes:
                    read[uri] = contents
                    left_bytes -= size * times
        return read


class InputRequest:
    """Asks the client a question, and leaves the task waiting for the answer."""

    def __init__(self, ask: RequireInput, *, is_all: bool = True) -> None:
        """`is_all` says that the turn ran no tool before this question."""
        self._ask = ask
        self._is_all = is_all

    async def __call__(self, job: Job) -> None:
        """Put the task into the state that waits for the client."""
        if self._is_all:
            job.allow_repeats()
        if self._ask.stays:
            job.stay()
        message = message_with_notes(job, self._ask.parts, self._ask.metadata)
        await job.status(self._ask.state, message, keep=self._ask.kept)


class Conclusion:
    """Ends the task without running anything."""

    def __init__(self, end: End) -> None:
        self._end = end

    async def __call__(self, job: Job) -> None:
        """Put the task into its final state. A brief answer is the result, so that a Message can be the answer."""
        job.allow_repeats()
        if self._end.is_brief:
            job.artifact(Artifact(artifact_id=job.new_id(), parts=_in_words(self._end.words)))
            notes = notes_of(job)
            await job.status(self._end.state, message_with_notes(job, ()) if notes else None, keep=b"")
            return
        message = message_with_notes(job, _in_words(self._end.words))
        await job.status(self._end.state, message, keep=b"")


async def _outcome(
    call: CallInRounds, progress: ProgressRelay, logs: LogRelay | None, patience: PausableDeadline
) -> JsonObject | RequireInput | ServerRefusedError | TaskCancelledError | None:
    """The outcome of a call; None if it took too long. Waiting progress and log messages are sent before this returns.

    Raises:
        PeerError: the server gave no answer, and did not refuse the call.
        BusyError: the call got no slot in time.
    """

    def flush() -> None:
        progress.flush()
        if logs is not None:
            logs.flush()

    outcome: JsonObject | RequireInput | ServerRefusedError | TaskCancelledError | None = None
    try:
        with patience.scope:
            outcome = await call.result(progress)
    except (ServerRefusedError, TaskCancelledError) as exc:
        outcome = exc
    except (PeerError, BusyError):
        flush()
        raise
    flush()
    return outcome


def _meta_of(peer: JsonObject) -> JsonObject:
    meta = peer.get("_meta")
    return meta if isinstance(meta, dict) else {}


def _in_words(text: str) -> tuple[Part, ...]:
    return (Part(text=text),)


def _repeated(job: Job, *, is_error: bool) -> Repeated:
    """Which form of repeated content is passed on. With the extension, both forms are; a failure always keeps its
    text."""
    if URI in job.turn.extensions:
        return Repeated.BOTH
    repeated = repeated_for(job.turn.configuration.accepted_output_modes or ())
    return Repeated.BOTH if is_error and repeated is Repeated.DATA else repeated


def _note_on(parts: Sequence[Part], job: Job) -> tuple[Part, ...]:
    """A note on media types in the result that the client did not accept."""
    extra = unaccepted_types(parts, job.turn.configuration.accepted_output_modes or ())
    return (Part(text=f"The result also holds {', '.join(extra)}"),) if extra else ()
