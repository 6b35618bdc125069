"""The tools that the conformance suites call: how they are listed, what they ask, and what they hold.

Plain values for the two fixtures that have them: an agent that has never heard of MCP, and an MCP server. The names,
the keys of the questions and their defaults are the suites'. Must not know either protocol's SDK.
"""

from __future__ import annotations

import io
import struct
import wave
import zlib
from dataclasses import dataclass
from typing import Any, Final

WORK_SECONDS: Final = 1.0
"""How long a tool works whose call has to become a task."""
STEPS: Final = (0, 50, 100)
"""What test_tool_with_progress reports, of 100."""
EMBEDDED_URI: Final = "test://embedded-resource"
MIXED_URI: Final = "test://mixed-content-resource"
GROWN: Final = "grown"
"""The tool that comes and goes when the list is to change."""


def _png() -> bytes:
    """A picture of one red pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\x00\xff\x00\x00")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def _wav() -> bytes:
    """A recording of eight silent samples."""
    file = io.BytesIO()
    with wave.open(file, "wb") as recording:
        recording.setnchannels(1)
        recording.setsampwidth(1)
        recording.setframerate(8000)
        recording.writeframes(b"\x80" * 8)
    return file.getvalue()


PNG: Final = _png()
WAV: Final = _wav()


@dataclass(frozen=True)
class Question:
    """A form that a tool asks its user to fill in."""

    key: str
    words: str
    fields: dict[str, Any]
    optional: bool = False

    @property
    def schema(self) -> dict[str, Any]:
        """The form's."""
        required = {} if self.optional else {"required": [*self.fields]}
        return {"type": "object", "properties": self.fields, **required}


@dataclass(frozen=True)
class Asking:
    """A tool that asks, round by round, and then says what it was answered."""

    rounds: tuple[tuple[Question, ...], ...]
    works_first: bool = False
    """Whether it works for a while before it asks."""
    works_last: bool = False
    """Whether it works for a while after the last answer."""


_TEXT: Final = {"type": "string"}
_YES: Final = {"type": "boolean"}
_NAME: Final = Question("user_name", "What are you called?", {"name": _TEXT})
_CONFIRM: Final = Question("confirm", "Is that right?", {"ok": _YES})

_DEFAULTS: Final = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
_PLAIN: Final = ["option1", "option2", "option3"]
_TITLED: Final = [{"const": f"value{number}", "title": f"Choice {number}"} for number in (1, 2, 3)]
_ENUMS: Final = {
    "untitledSingle": {"type": "string", "enum": _PLAIN},
    "titledSingle": {"type": "string", "oneOf": _TITLED},
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": _PLAIN}},
    "titledMulti": {"type": "array", "items": {"anyOf": _TITLED}},
}

ASKING: Final[dict[str, Asking]] = {
    "test_elicitation": Asking(((Question("who", "", {"username": _TEXT, "email": _TEXT}),),)),
    "test_elicitation_sep1034_defaults": Asking(
        ((Question("defaults", "Who is it?", _DEFAULTS, optional=True),),)
    ),
    "test_elicitation_sep1330_enums": Asking(((Question("enums", "Which ones?", _ENUMS, optional=True),),)),
    "test_streaming_elicitation": Asking(((_NAME,),)),
    "test_input_required_result_elicitation": Asking(((_NAME,),)),
    "test_input_required_result_request_state": Asking(((_CONFIRM,),)),
    "test_input_required_result_tampered_state": Asking(((_CONFIRM,),)),
    "test_input_required_result_multiple_inputs": Asking(((_NAME,),)),
    "test_input_required_result_capabilities": Asking(((_NAME,),)),
    "test_input_required_result_multi_round": Asking(
        (
            (Question("step1", "First: what are you called?", {"name": _TEXT}),),
            (Question("step2", "Then: which colour do you like?", {"color": _TEXT}),),
        )
    ),
    "test_tool_with_task": Asking(((_NAME,),), works_last=True),
    "confirm_delete": Asking(((Question("delete", "Delete it?", {"confirm": _YES}),),), works_first=True),
    "multi_input": Asking(
        (
            (
                Question("first", "The first name?", {"name": _TEXT}),
                Question("second", "The second name?", {"name": _TEXT}),
            ),
        ),
        works_first=True,
    ),
}
"""What is asked. The message of test_elicitation is its argument."""

WANTS_SAMPLING: Final = frozenset(
    {"test_sampling", "test_missing_capability", "test_input_required_result_sampling"}
)
WANTS_ROOTS: Final = frozenset({"test_input_required_result_list_roots"})

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_EVERY_KEYWORD: Final = {
    "$schema": _DIALECT,
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": _TEXT, "city": _TEXT},
        }
    },
    "properties": {"address": {"$ref": "#/$defs/address"}, "way": _TEXT, "phone": _TEXT, "email": _TEXT},
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"way": {"const": "phone"}}, "required": ["way"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}

_ARGUMENTS: Final[dict[str, dict[str, Any]]] = {
    "test_sampling": {"prompt": _TEXT},
    "test_elicitation": {"message": _TEXT},
    "test_custom_header": {"region": {"type": "string", "x-mcp-header": "Region"}},
    "greet": {"name": _TEXT},
    "slow_compute": {"seconds": {"type": "number"}, "label": _TEXT},
    "confirm_delete": {"filename": _TEXT},
}
_WITHOUT: Final = (
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_error_handling",
    "test_tool_with_logging",
    "test_tool_with_progress",
    "test_reconnection",
    "test_logging_tool",
    "test_missing_capability",
    "test_input_required_result_sampling",
    "test_input_required_result_list_roots",
    "test_trigger_tool_change",
    "test_trigger_prompt_change",
    "failing_job",
    "protocol_error_job",
)


def _listed(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "description": f"Does what {name} is named after.", "inputSchema": schema}


def _schema(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


TOOLS: Final[dict[str, dict[str, Any]]] = {
    name: _listed(name, _schema(_ARGUMENTS.get(name, {})))
    for name in dict.fromkeys((*_WITHOUT, *ASKING, *_ARGUMENTS))
} | {"json_schema_2020_12_tool": _listed("json_schema_2020_12_tool", _EVERY_KEYWORD)}
"""Each tool as tools/list shows it, by its name."""

GROWN_TOOL: Final = _listed(GROWN, _schema({}))


def listed(*, grown: bool) -> list[dict[str, Any]]:
    """What is listed, with or without the tool that comes and goes."""
    return [*TOOLS.values(), *([GROWN_TOOL] if grown else [])]


def words_of(answers: dict[str, Any]) -> str:
    """What an asking tool says in the end."""
    said = ", ".join(
        f"{name}={value}" for answer in answers.values() for name, value in dict(answer or {}).items()
    )
    return f"You answered: {said or 'nothing'}"
