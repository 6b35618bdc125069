"""Reads the JSON Schema that pydantic makes of the models. Pure."""

from __future__ import annotations

from typing import Any, Final

from bridge.config.text.positions import KeyPath
from bridge.config.text.wording import listed

_UNITS: Final = (
    ("_seconds", "seconds"),
    ("_days", "days"),
    ("_bytes", "bytes"),
    ("_per_second", "per second"),
)

_WORDS: Final = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}

_FORMATS: Final = {"uri": "a URL", "path": "a path"}

SchemaNode = dict[str, Any]


def node_at(schema: SchemaNode, path: KeyPath) -> SchemaNode:
    """The schema of the value at a path; empty when there is none."""
    node = _followed(schema, schema)
    for step in path:
        if isinstance(step, int):
            node = node.get("items", {})
        else:
            node = node.get("properties", {}).get(step) or _of_any_name(node)
        node = _followed(schema, node)
    return node


def accepted_by(node: SchemaNode) -> list[str]:
    """The words that a key accepts, if it accepts only certain words; empty otherwise."""
    accepted: list[str] = [node["const"]] if "const" in node else node.get("enum", [])
    return accepted


def range_of(node: SchemaNode) -> str:
    """The range of a number in words, such as `0 to 65535` or `1 or more`; "" without bounds."""
    least, most, above = (node.get(key) for key in ("minimum", "maximum", "exclusiveMinimum"))
    if most is None:
        return f"{least} or more" if least is not None else _above(node) if above is not None else ""
    return f"{least} to {most}" if least is not None else f"{_above(node)}, at most {most}"


def _above(node: SchemaNode) -> str:
    least = node["exclusiveMinimum"]
    return f"{least + 1} or more" if node.get("type") == "integer" else f"more than {least}"


def unit_of(key: str) -> str:
    """The unit in a key's name; "" if there is none."""
    return next((unit for suffix, unit in _UNITS if key.endswith(suffix)), "")


def tidied(node: Any) -> Any:
    """A schema without titles and null (which TOML does not have), and which forbids names that do not match their
    pattern."""
    if isinstance(node, list):
        return [tidied(inner) for inner in node]
    if not isinstance(node, dict):
        return node
    tidy = {key: tidied(inner) for key, inner in node.items() if not _is_noise(key, inner)}
    kinds = tidy.get("anyOf", [])
    rest = [kind for kind in kinds if kind != {"type": "null"}]
    if len(rest) == 1 != len(kinds):
        tidy.pop("anyOf")
        tidy = {**rest[0], **tidy}
    elif len(rest) < len(kinds):
        tidy["anyOf"] = rest
    if "patternProperties" in tidy:
        tidy["additionalProperties"] = False
    return tidy


def _of_any_name(node: SchemaNode) -> SchemaNode:
    named: SchemaNode | None = next(iter(node.get("patternProperties", {}).values()), None)
    more = node.get("additionalProperties")
    return named or (more if isinstance(more, dict) else {})


def _followed(schema: SchemaNode, node: SchemaNode) -> SchemaNode:
    """Follow references to the node that they name."""
    while "$ref" in node:
        node = schema["$defs"][node["$ref"].rpartition("/")[2]]
    return node


def _is_noise(key: str, value: object) -> bool:
    return (key == "title" and isinstance(value, str)) or (key == "default" and value in (None, {}, []))


def takes_of(node: SchemaNode) -> str:
    """The values that a key takes, in words: `a whole number, 0 to 65535`."""
    if words := accepted_by(node):
        return listed(f'`"{word}"`' for word in words)
    if "$ref" in node or "oneOf" in node:
        return "a secret" if "oneOf" in node else "a table"
    if "anyOf" in node:
        return " or ".join(takes_of(kind) for kind in node["anyOf"])
    kind = _FORMATS.get(node.get("format", "")) or _WORDS.get(node.get("type", ""), "any value")
    if node.get("type") == "array":
        return f"a list: {takes_of(node.get('items', {}))} each"
    if node.get("type") == "object":
        return f"a table: name = {takes_of(_of_any_name(node))}"
    numbers = range_of(node)
    return f"{kind}, {numbers}" if numbers else kind
