"""Content blocks as parts, by golden files: for clients with the extension and for clients without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import from_json, to_json

from bridge.a2a.model.objects import Part
from bridge.a2a.wire.extensions import ExtensionFilter
from bridge.text.jsonvalues import is_deeper
from bridge.translate.blocks import ResultRules, blocks_from_parts
from bridge.translate.content import (
    HELD,
    MAX_DATA_DEPTH,
    PART_META,
    LinkRules,
    Repeated,
    links_to_read,
    parts_from_result,
    peer_metadata,
)
from bridge.translate.extensions.bridge import BLOCK, GATED, URI

pytestmark = pytest.mark.proves("map-content")

GOLDEN = Path(__file__).with_name("golden")
CASES = sorted(path.name.removesuffix(".mcp.json") for path in GOLDEN.glob("*.mcp.json"))
ACTIVE = LinkRules(extension_active=True)
INACTIVE = LinkRules(extension_active=False)


def read(case: str, kind: str) -> Any:
    return json.loads((GOLDEN / f"{case}.{kind}.json").read_text(encoding="utf-8"))


def seen(result: Any, links: LinkRules, repeated: Repeated = Repeated.BOTH) -> list[Any]:
    """The parts as a client gets them, after metadata of inactive extensions was removed."""
    parts_made = parts_from_result(result, links, repeated)
    written = to_json({"parts": [part.to_object() for part in parts_made]})
    active = frozenset({URI}) if links.extension_active else frozenset()
    parts: list[Any] = from_json(ExtensionFilter(GATED).filtered(written, active))["parts"]
    return parts


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = {"a": value}
    return value


def block_from(part: Any) -> Any:
    """The documented recipe to restore the block of a part, from the part and its metadata under `.../block`.

    Without `.../block`, the type is text, or the first half of the media type. The part's fields go back to where they
    came from: text, raw and url to their fields, the media type to mimeType.
    """
    implied = "text" if "text" in part else part.get("mediaType", "").partition("/")[0]
    rest = dict(part.get("metadata", {}).get(BLOCK, {"type": implied}))
    if rest["type"] in ("block", "structuredContent"):
        return json.loads(part["text"]) if rest.get("spelled") else part["data"]
    rest.pop("twin", None)
    typed = {"mimeType": part["mediaType"]} if "mediaType" in part else {}
    match rest["type"]:
        case "text":
            return {**rest, "text": part["text"]}
        case "image" | "audio":
            return {**rest, "data": part["raw"], **typed}
        case "resource":
            held = {"text": part["text"]} if "text" in part else {"blob": part["raw"]}
            return {**rest, "resource": {**rest["resource"], **held, **typed}}
        case "resource_link":
            return {**rest, "uri": part["url"], **typed}
    raise AssertionError(part)


def result_from(parts: list[Any]) -> Any:
    """The content and structured content that these parts were made from."""
    structured = [part for part in parts if type_of(part) == "structuredContent"]
    content = [block_from(part) for part in parts if type_of(part) != "structuredContent"]
    return {"content": content} | ({"structuredContent": block_from(structured[0])} if structured else {})


def type_of(part: Any) -> Any:
    return part.get("metadata", {}).get(BLOCK, {}).get("type")


@pytest.mark.proves("map-content")
@pytest.mark.parametrize("case", CASES)
def test_a_result_becomes_the_parts_of_its_golden_file(case: str) -> None:
    result = read(case, "mcp")
    assert {"active": seen(result, ACTIVE), "inactive": seen(result, INACTIVE)} == read(case, "a2a-1.0")


@pytest.mark.proves("map-block")
@pytest.mark.parametrize("case", CASES)
def test_with_the_extension_every_block_can_be_restored_exactly(case: str) -> None:
    result = read(case, "mcp")
    original = {key: result[key] for key in ("content", "structuredContent") if key in result}
    parts = seen(result, LinkRules(extension_active=True, allow_file=True))
    assert result_from(parts) == {"content": [], **original}


@pytest.mark.parametrize("case", CASES)
def test_without_the_extension_no_part_holds_its_block(case: str) -> None:
    assert BLOCK not in json.dumps(seen(read(case, "mcp"), INACTIVE))


SAID_TWICE: list[tuple[str, list[str], Any, str]] = [
    ("equal", ['{ "n":1.0 }'], {"n": 1}, "once"),
    ("equal-null", ["null"], None, "once"),
    ("wrapped", ["Hello, Ada!"], {"result": "Hello, Ada!"}, "once"),
    ("wrapped-number", ["5"], {"result": 5}, "once"),
    ("wrapped-list", ["[1, 2]"], {"result": [1, 2]}, "once"),
    ("among-others", ["In words:", '{"n": 1}'], {"n": 1}, "once"),
    ("human-words", ["n is one"], {"n": 1}, "both"),
    ("other-value", ['{"n": 2}'], {"n": 1}, "both"),
    ("true-is-no-number", ["1"], {"result": True}, "both"),
    ("more-than-wrapped", ["Hello"], {"result": "Hello", "n": 1}, "both"),
    ("one-field-of-another-name", ["Hello"], {"greeting": "Hello"}, "both"),
    ("each-a-part-of-it", ["1", "2"], {"result": [1, 2]}, "both"),
    ("no-text", [], {"n": 1}, "both"),
]


@pytest.mark.proves("map-content")
@pytest.mark.parametrize("repeated", Repeated)
@pytest.mark.parametrize(("texts", "structured", "shown"), [row[1:] for row in SAID_TWICE])
def test_content_repeated_as_text_and_data_is_sent_once_and_nothing_else_is_left_out(
    texts: list[str], structured: Any, shown: str, repeated: Repeated
) -> None:
    content = [{"type": "text", "text": text} for text in texts]
    parts = [{"text": text} for text in texts]
    data = {"data": structured, "mediaType": "application/json"}
    expected = {
        Repeated.BOTH: [*parts, data],
        Repeated.TEXT: parts if shown == "once" else [*parts, data],
        Repeated.DATA: [*parts[:-1], data] if shown == "once" else [*parts, data],
    }
    result = {"content": content, "structuredContent": structured}
    assert seen(result, INACTIVE, repeated) == expected[repeated]


def test_a_resource_or_image_never_replaces_the_structured_content() -> None:
    inner = {"uri": "demo://n", "text": "5"}
    result = {"content": [{"type": "resource", "resource": inner}], "structuredContent": {"result": 5}}
    for repeated in Repeated:
        assert len(seen(result, INACTIVE, repeated)) == 2


@pytest.mark.parametrize("levels", [MAX_DATA_DEPTH, MAX_DATA_DEPTH + 1, 250])
@pytest.mark.parametrize(
    "make",
    [
        lambda deep: {"content": [], "structuredContent": deep},
        lambda deep: {"content": [{"type": "text", "text": "t", "_meta": {"deep": deep}}]},
        lambda deep: {"content": [{"type": "hologram", "deep": deep}]},
        lambda deep: {"content": [deep]},
    ],
    ids=["structured", "meta", "unknown", "no-object"],
)
@pytest.mark.proves("map-block")
def test_a_value_that_is_too_deep_is_sent_as_text_and_comes_back(make: Any, levels: int) -> None:
    result = make(nested(levels))
    parts = seen(result, ACTIVE)
    assert not is_deeper(parts, MAX_DATA_DEPTH + 6)
    assert result_from(parts) == result


def test_a_text_of_very_many_brackets_is_only_a_text() -> None:
    text = "[" * 100_000
    parts = seen({"content": [{"type": "text", "text": text}], "structuredContent": {}}, INACTIVE)
    assert parts == [{"text": text}, {"data": {}, "mediaType": "application/json"}]


def test_content_that_is_not_a_list_is_passed_on_anyway() -> None:
    assert seen({"content": {"type": "text", "text": "alone"}}, INACTIVE) == [{"text": "alone"}]


READ_TEXT = {"uri": "demo://one", "mimeType": "text/markdown", "text": "# One"}
READ_BLOB = {"uri": "demo://dir/two.bin", "blob": "AAAA"}


@pytest.mark.proves("map-content")
def test_the_contents_of_a_link_replace_it_in_order() -> None:
    link = {"type": "resource_link", "uri": "demo://dir", "name": "dir"}
    web = {"type": "resource_link", "uri": "https://example.com/", "name": "web"}
    links = LinkRules(extension_active=False, read={"demo://dir": [READ_TEXT, READ_BLOB, "odd"]})
    assert seen({"content": [web, link, {"type": "text", "text": "end"}]}, links) == [
        {"url": "https://example.com/", "filename": "web"},
        {"text": "# One", "mediaType": "text/markdown"},
        {"raw": "AAAA", "filename": "two.bin"},
        {"data": "odd", "mediaType": "application/json"},
        {"text": "end"},
    ]


def test_with_the_extension_links_stay_links() -> None:
    link = {"type": "resource_link", "uri": "demo://one", "name": "one"}
    links = LinkRules(extension_active=True, read={"demo://one": [READ_TEXT]})
    assert [part["url"] for part in seen({"content": [link]}, links)] == ["demo://one"]


@pytest.mark.parametrize("active", [True, False])
@pytest.mark.parametrize("read", [{}, {"file:///secret/name": [{"text": "content"}]}])
def test_a_file_link_reveals_its_path_only_if_allowed(active: bool, read: Any) -> None:
    link = {"type": "resource_link", "uri": "file:///secret/name", "name": "n"}
    parts = parts_from_result({"content": [link]}, LinkRules(extension_active=active, read=read))
    assert "secret" not in json.dumps([part.to_object() for part in parts])


def test_an_allowed_file_link_is_a_url_part() -> None:
    link = {"type": "resource_link", "uri": "file:///a", "name": "a"}
    assert seen({"content": [link]}, LinkRules(extension_active=False, allow_file=True)) == [
        {"url": "file:///a", "filename": "a"}
    ]


def test_links_to_read_are_counted_and_never_web_links() -> None:
    uris = ["https://a/", "HTTP://b/", "demo://x", "file:///y", "demo://x", "http://[broken", "", None]
    content: list[Any] = [{"type": "resource_link", "uri": uri} for uri in uris]
    content += [{"type": "text", "uri": "demo://text"}, "demo://string"]
    assert links_to_read(content) == {"demo://x": 2, "file:///y": 1, "": 1}


def test_the_other_fields_of_a_result_are_kept_for_metadata() -> None:
    result = {
        "content": [],
        "structuredContent": {},
        "isError": False,
        "resultType": "complete",
        "_meta": {"a": None},
        "tomorrow": [1],
    }
    assert peer_metadata(result) == {"_meta": {"a": None}, "tomorrow": [1]}


def test_metadata_that_is_too_deep_is_sent_as_text() -> None:
    deep = nested(MAX_DATA_DEPTH + 1)
    assert peer_metadata({"_meta": deep}) == {"_meta": json.dumps(deep)}


@pytest.mark.parametrize("kind", HELD)
def test_each_row_of_the_table_restores_its_block(kind: str) -> None:
    row = HELD[kind]
    for part_kind, name in row.fields.items():
        said = {name: "QUJD", **({"mimeType": f"{kind}/x"} if row.takes_type else {})}
        block = {"type": kind, "unknown": 1, **({"resource": said} if kind == "resource" else said)}
        (part,) = parts_from_result({"content": [block]}, ACTIVE)
        assert (part.kind, getattr(part, part_kind)) == (part_kind, "QUJD")
        assert blocks_from_parts([part], ResultRules(extension_active=True)) == [block]
        bare = {"type": kind, "resource": {}} if kind == "resource" else {"type": kind}
        (whole,) = parts_from_result({"content": [bare]}, ACTIVE)
        assert (whole.kind, whole.data) == ("data", bare)


@pytest.mark.parametrize(
    ("block", "name"),
    [
        ({"type": "image", "data": "AAAA", "mimeType": "image/png"}, "a.png"),
        ({"type": "text", "text": "# a"}, "a.md"),
        ({"type": "resource", "resource": {"uri": "a2a://x/tasks/h/a/0", "blob": "AAAA"}}, "a.pdf"),
    ],
)
def test_a_file_keeps_the_name_that_a_bridge_wrote_into_its_metadata(block: Any, name: str) -> None:
    block = {**block, "_meta": {PART_META: {"filename": name}}}
    (part,) = parts_from_result({"content": [block]}, LinkRules(extension_active=True))
    assert part.filename == name
    for odd in (None, 3, "", {"filename": 3}, {"filename": ""}):
        (part,) = parts_from_result(
            {"content": [{**block, "_meta": {PART_META: odd}}]}, LinkRules(extension_active=True)
        )
        assert part.filename in (None, "0")


ACTED_ON = [
    *("javascript:alert(1)", "JaVaScRiPt:alert(1)", " javascript:alert(1)", "java\nscript:alert(1)"),
    *(
        "javascript://x/%0aalert(1)",
        "data:text/html,<script>1</script>",
        "vbscript:x",
        "jar:https://x.test/a!/b",
    ),
    *(
        "view-source:https://x.test",
        "blob:https://x.test/1",
        "vscode://file/etc/passwd",
        "ms-msdt:/id",
        "smb://x/y",
    ),
    *(
        "mailto:a@x.test",
        "http://x.test/a b",
        "ms-word://x",
    ),
]


@pytest.mark.parametrize("active", [False, True])
@pytest.mark.parametrize("uri", ACTED_ON)
def test_a_uri_that_a_browser_or_program_acts_on_is_not_a_link_in_either_direction(
    uri: str, active: bool
) -> None:
    link = {"type": "resource_link", "uri": uri, "name": "n"}
    (part,) = parts_from_result({"content": [link]}, LinkRules(active))
    assert part.url is None
    for metadata in (None, {BLOCK: {"type": "resource_link", "name": "n"}}):
        given = Part(url=uri, metadata=metadata)
        (block,) = blocks_from_parts((given,), ResultRules(extension_active=active))
        assert isinstance(block, dict)
        assert block["type"] == "text"


@pytest.mark.parametrize(
    "uri", ["https://x.test/a", "HTTP://x.test", "demo://notes/one", "demo:x", "urn:isbn:1"]
)
def test_a_web_address_and_the_name_of_a_resource_are_links(uri: str) -> None:
    link = {"type": "resource_link", "uri": uri, "name": "n"}
    (part,) = parts_from_result({"content": [link]}, LinkRules(True))
    assert part.url == uri
