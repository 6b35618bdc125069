"""Files of a message placed in the properties that ask for a file."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.a2a.model.objects import Part
from bridge.translate.files import place_files, takes_file
from tests.support.tools import tool

pytestmark = pytest.mark.proves("map-files")

BASE64 = {"type": "string", "contentEncoding": "base64"}
PNG = {**BASE64, "contentMediaType": "image/png"}
LINK = {"type": "string", "format": "uri"}
FILE = Part(raw="AAAA", media_type="image/png")
TEXT_FILE = Part(raw="BBBB", media_type="text/plain; charset=utf-8")
BARE = Part(raw="CCCC")
URL = Part(url="https://example.com/a.png", media_type="image/png")

PLACES: list[tuple[dict[str, Any], dict[str, Any], list[Part], Any, list[Part]]] = [
    ({"f": BASE64}, {}, [FILE], {"f": "AAAA"}, []),
    ({"f": PNG}, {}, [FILE], {"f": "AAAA"}, []),
    ({"f": {**PNG, "contentMediaType": "Image/PNG"}}, {}, [FILE], {"f": "AAAA"}, []),
    ({"f": PNG}, {}, [BARE], {"f": "CCCC"}, []),
    ({"f": PNG}, {}, [TEXT_FILE], {}, [TEXT_FILE]),
    ({"f": {**PNG, "contentMediaType": "text/plain"}}, {}, [TEXT_FILE], {"f": "BBBB"}, []),
    ({"f": BASE64}, {}, [URL], {}, [URL]),
    ({"f": LINK}, {}, [URL], {"f": "https://example.com/a.png"}, []),
    ({"f": LINK}, {}, [FILE], {"f": "data:image/png;base64,AAAA"}, []),
    ({"f": LINK}, {}, [BARE], {"f": "data:application/octet-stream;base64,CCCC"}, []),
    ({"f": BASE64}, {}, [FILE, BARE], {"f": "AAAA"}, [BARE]),
    ({"f": BASE64, "g": BASE64}, {}, [FILE, BARE], {"f": "AAAA", "g": "CCCC"}, []),
    ({"f": BASE64, "g": BASE64}, {"f": "said"}, [FILE], {"f": "said", "g": "AAAA"}, []),
    ({"f": PNG, "g": BASE64}, {}, [TEXT_FILE, FILE], {"g": "BBBB", "f": "AAAA"}, []),
    ({"f": {"type": "array", "items": BASE64}}, {}, [FILE, BARE], {"f": ["AAAA", "CCCC"]}, []),
    ({"f": {"type": "array", "items": BASE64}}, {"f": ["said"]}, [FILE], {"f": ["said", "AAAA"]}, []),
    ({"f": {"type": "string"}}, {}, [FILE], {}, [FILE]),
    ({}, {"a": 1}, [], {"a": 1}, []),
]


@pytest.mark.proves("map-files")
@pytest.mark.parametrize(("properties", "given", "files", "filled", "unplaced"), PLACES)
def test_each_file_fills_the_first_free_property_that_takes_it(
    properties: Any, given: Any, files: list[Part], filled: Any, unplaced: list[Part]
) -> None:
    before = dict(given)
    assert place_files(tool(**properties), given, files) == (filled, tuple(unplaced))
    assert given == before


@pytest.mark.parametrize(
    ("schema", "takes"),
    [
        (BASE64, True),
        ({"type": "string", "contentMediaType": "text/html"}, True),
        (LINK, True),
        ({"type": "array", "items": PNG}, True),
        ({"type": "array"}, False),
        ({"type": "string", "format": "email"}, False),
        (True, False),
    ],
)
def test_which_properties_ask_for_a_file(schema: Any, takes: bool) -> None:
    assert takes_file(schema) is takes
