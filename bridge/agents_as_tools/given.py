"""What a host gives with a call of a tool: arguments, a conversation to go on with, or a round to come back from.

Whatever is wrong with it is found here, before an agent hears of the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bridge.agents_as_tools.handles import FarContext, FarQuestion, Handles
from bridge.jsonvalues import JsonObject
from bridge.mcp.server.face import INVALID_PARAMS, IncomingCall, McpRefusal
from bridge.seal import HandleError, request_digest
from bridge.translate.call_to_message import BadArgumentsError, context_in
from bridge.translate.overrides import ArgumentRule, hidden_arguments_in, with_default_arguments
from bridge.translate.skill_tools import AgentTool


@dataclass(frozen=True, slots=True)
class CallInput:
    """One call, as it came in."""

    incoming: IncomingCall
    tool: AgentTool
    mark: str
    """The agent's."""
    handles: Handles
    rules: Mapping[str, ArgumentRule]

    @property
    def digest(self) -> bytes:
        """What makes another round the same request: what the host gave, whatever is filled in for it."""
        return request_digest(self.incoming.name, self.incoming.arguments)

    def arguments(self) -> JsonObject:
        """The arguments as the agent gets them.

        Raises:
            BadArgumentsError: the caller sets one that is not its to set.
        """
        given = self.incoming.arguments
        if theirs := hidden_arguments_in(given, self.rules):
            raise BadArgumentsError(f"{', '.join(theirs)}: the tool {self.tool.name} has no such argument")
        return with_default_arguments(given, self.tool.input_schema, self.rules)

    def context(self, arguments: JsonObject) -> FarContext | None:
        """The conversation that the call continues.

        Raises:
            BadArgumentsError: there is none such with this agent.
        """
        text = None if self.tool.original else context_in(arguments)
        if text is None:
            return None
        try:
            context = self.handles.context(text, self.incoming.principal)
        except HandleError as exc:
            raise BadArgumentsError(f"context: {exc}") from exc
        if context.agent != self.mark:
            raise BadArgumentsError("context: it belongs to another agent")
        return context

    def question(self, state: str) -> FarQuestion:
        """The question that a round answers.

        Raises:
            McpRefusal: its state is of another call.
        """
        try:
            question = self.handles.question(state, self.incoming.principal, self.digest)
        except HandleError as exc:
            raise McpRefusal(INVALID_PARAMS, str(exc)) from exc
        if question.task.agent != self.mark:
            raise McpRefusal(INVALID_PARAMS, str(HandleError()))
        return question
