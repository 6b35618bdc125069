"""Which calls wait for a yes, and what stays of them until it comes. Decides; does nothing.

Spec: A2A 1.0 section 7.6.
"""

from __future__ import annotations

from dataclasses import replace

from bridge.a2a.model.errors import Violation, invalid_params
from bridge.a2a.model.objects import TaskState
from bridge.a2a.tasks.agent import Turn
from bridge.mcp.tools import Tool
from bridge.tools_as_agent.decisions import RequireInput, RunTool
from bridge.tools_as_agent.kept import Confirmation
from bridge.tools_as_agent.options import AgentOptions
from bridge.translate.arguments import properties_of
from bridge.translate.confirmation import (
    call_digest,
    confirmation_key,
    confirmation_metadata,
    needs_confirmation,
    parts_of_confirmation,
)
from bridge.translate.extension import QUESTION
from bridge.translate.message_to_call import SkillCall
from bridge.translate.overrides import is_hidden


def require_names_question(turn: Turn, asked: Confirmation) -> None:
    """See to it that an answer names this question, or none.

    Raises:
        A2AError: INVALID_PARAMS, when it names another, in its own metadata or in the request's.
    """
    for where, metadata in (("message.metadata", turn.message.metadata), ("metadata", turn.metadata)):
        if (metadata or {}).get(QUESTION) not in (None, confirmation_key(asked.digest)):
            fault = f"names no open question; open: {confirmation_key(asked.digest)}"
            raise invalid_params(Violation(f'{where}["{QUESTION}"]', fault))


def without_unknown_arguments(call: SkillCall, asked: Confirmation, tool: Tool) -> SkillCall:
    """A call that was not agreed to, without what may be no argument but an answer that is not understood."""
    known = {*properties_of(tool.input_schema), *asked.arguments}
    return replace(call, arguments={name: one for name, one in call.arguments.items() if name in known})


def unless_confirmation(
    run: RunTool, call: SkillCall, options: AgentOptions, confirmed: str | None
) -> RunTool | RequireInput:
    """The call, or the question whether it may be made; `confirmed` is the digest that was said yes to."""
    skill = run.skill
    is_free = not needs_confirmation(skill.tool, options.confirm, skill.override.confirm)
    if is_free or call_digest(skill.source_key, skill.tool, run.arguments) == confirmed:
        return run
    return confirmation(run, call)


def confirmation(run: RunTool, call: SkillCall) -> RequireInput:
    """The question whether a call may be made."""
    skill = run.skill
    digest = call_digest(skill.source_key, skill.tool, run.arguments)
    shown = {
        name: value for name, value in run.arguments.items() if not is_hidden(name, skill.override.arguments)
    }
    parts = parts_of_confirmation(skill.id, skill.tool, shown, digest)
    kept = Confirmation(skill.id, call.arguments, digest)
    metadata = confirmation_metadata(skill.id, shown, digest)
    return RequireInput(TaskState.AUTH_REQUIRED, parts, metadata, kept.to_bytes())
