"""The resources, prompts and completions that the suites read, of the MCP server of the fixtures.

The names, URIs and arguments are the suites'. Must not import `bridge`.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any, Final

import mcp_types as types
from mcp import MCPError
from mcp.server.context import ServerRequestContext

from tests.conformance.wanted_tools import PNG

Context = ServerRequestContext[Any, Any]

_WATCHED: Final = "test://watched-resource"
_RESOURCES: Final = {
    "test://static-text": "text/plain",
    "test://static-binary": "image/png",
    _WATCHED: "text/plain",
}
_TEMPLATE: Final = "test://template/{id}/data"
_OF_TEMPLATE: Final = re.compile(r"test://template/([^/]+)/data")
_ASKED: Final = types.ElicitRequest(
    params=types.ElicitRequestFormParams(
        message="What context should the prompt use?",
        requested_schema={
            "type": "object",
            "properties": {"context": {"type": "string"}},
            "required": ["context"],
        },
    )
)
_PROMPTS: Final[dict[str, tuple[str, ...]]] = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
    "test_input_required_result_prompt": (),
}
"""The prompts, each with its arguments."""


async def list_resources(_: Context, __: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
    """The resources."""
    listed = [types.Resource(uri=uri, name=uri, mime_type=kind) for uri, kind in _RESOURCES.items()]
    return types.ListResourcesResult(resources=listed)


async def list_templates(
    _: Context, __: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    """The only template."""
    template = types.ResourceTemplate(uri_template=_TEMPLATE, name="data", mime_type="application/json")
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def read(_: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    """The contents of a resource."""
    uri = str(params.uri)
    if uri == "test://static-binary":
        blob = base64.b64encode(PNG).decode()
        return types.ReadResourceResult(
            contents=[types.BlobResourceContents(uri=uri, mime_type="image/png", blob=blob)]
        )
    if match := _OF_TEMPLATE.fullmatch(uri):
        text = json.dumps({"id": match[1], "templateTest": True, "data": f"Data for ID: {match[1]}"})
        return _text(uri, "application/json", text)
    if uri in _RESOURCES:
        return _text(uri, "text/plain", "This is the content of the static text resource.")
    raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})


def _text(uri: str, mime_type: str, text: str) -> types.ReadResourceResult:
    return types.ReadResourceResult(
        contents=[types.TextResourceContents(uri=uri, mime_type=mime_type, text=text)]
    )


async def subscribe(_: Context, __: types.SubscribeRequestParams) -> types.EmptyResult:
    """Take a subscription. The resources never change."""
    return types.EmptyResult()


async def unsubscribe(_: Context, __: types.UnsubscribeRequestParams) -> types.EmptyResult:
    """End a subscription."""
    return types.EmptyResult()


async def list_prompts(_: Context, __: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
    """The prompts."""
    return types.ListPromptsResult(
        prompts=[
            types.Prompt(
                name=name,
                description=f"The prompt {name} of the suites",
                arguments=[types.PromptArgument(name=argument, required=True) for argument in arguments],
            )
            for name, arguments in _PROMPTS.items()
        ]
    )


async def get_prompt(
    _: Context, params: types.GetPromptRequestParams
) -> types.GetPromptResult | types.InputRequiredResult:
    """A prompt, or the question that one asks first."""
    given = params.arguments or {}
    match params.name:
        case "test_simple_prompt":
            return _said("This is a simple prompt for testing.")
        case "test_prompt_with_arguments":
            words = f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'"
            return _said(words)
        case "test_prompt_with_embedded_resource":
            held = types.TextResourceContents(
                uri=given["resourceUri"],
                mime_type="text/plain",
                text="Embedded resource content for testing.",
            )
            embedded = types.EmbeddedResource(type="resource", resource=held)
            return _said("Please process the embedded resource above.", embedded)
        case "test_prompt_with_image":
            data = base64.b64encode(PNG).decode()
            image = types.ImageContent(type="image", data=data, mime_type="image/png")
            return _said("Please analyze the image above.", image)
        case "test_input_required_result_prompt":
            if not params.input_responses:
                return types.InputRequiredResult(input_requests={"user_context": _ASKED})
            return _said(f"In this context: {params.input_responses}")
    raise MCPError(types.INVALID_PARAMS, f"There is no prompt {params.name}")


def _said(words: str, *before: types.ContentBlock) -> types.GetPromptResult:
    blocks = [*before, types.TextContent(type="text", text=words)]
    return types.GetPromptResult(
        messages=[types.PromptMessage(role="user", content=block) for block in blocks]
    )


async def complete(_: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
    """What an argument may begin with."""
    known = ("paris", "park", "party")
    values = [value for value in known if value.startswith(params.argument.value)]
    return types.CompleteResult(completion=types.Completion(values=values, total=len(values), has_more=False))


async def set_level(_: Context, __: types.SetLevelRequestParams) -> types.EmptyResult:
    """Its log messages are of one level, which every client gets that wants any."""
    return types.EmptyResult()
