"""URI templates: the examples of RFC 6570, and templates that are none."""

from __future__ import annotations

from typing import Final

import pytest

from bridge.mcp.client.as_tools.uri_templates import Value, template_from

pytestmark = pytest.mark.proves("map-prompt-resource-skills")

VALUES: Final[dict[str, Value]] = {
    "count": ["one", "two", "three"],
    "dub": "me/too",
    "hello": "Hello World!",
    "half": "50%",
    "var": "value",
    "who": "fred",
    "base": "http://example.com/home/",
    "path": "/foo/bar",
    "list": ["red", "green", "blue"],
    "v": "6",
    "x": "1024",
    "y": "768",
    "empty": "",
    "empty_list": [],
}
EXAMPLES: Final = {
    # RFC 6570 section 3.2.2 to 3.2.9
    "{var}": "value",
    "{hello}": "Hello%20World%21",
    "{half}": "50%25",
    "O{empty}X": "OX",
    "O{undef}X": "OX",
    "{x,y}": "1024,768",
    "{x,hello,y}": "1024,Hello%20World%21,768",
    "?{x,empty}": "?1024,",
    "?{x,undef}": "?1024",
    "?{undef,y}": "?768",
    "{var:3}": "val",
    "{var:30}": "value",
    "{list}": "red,green,blue",
    "{list*}": "red,green,blue",
    "{+var}": "value",
    "{+hello}": "Hello%20World!",
    "{+half}": "50%25",
    "{base}index": "http%3A%2F%2Fexample.com%2Fhome%2Findex",
    "{+base}index": "http://example.com/home/index",
    "O{+empty}X": "OX",
    "{+path}/here": "/foo/bar/here",
    "here?ref={+path}": "here?ref=/foo/bar",
    "up{+path}{var}/here": "up/foo/barvalue/here",
    "{+x,hello,y}": "1024,Hello%20World!,768",
    "{+path:6}/here": "/foo/b/here",
    "{+list*}": "red,green,blue",
    "{#var}": "#value",
    "{#hello}": "#Hello%20World!",
    "foo{#empty}": "foo#",
    "foo{#undef}": "foo",
    "{#path:6}here": "#/foo/bhere",
    "{.who}": ".fred",
    "X{.empty}": "X.",
    "X{.list}": "X.red,green,blue",
    "X{.list*}": "X.red.green.blue",
    "{/who}": "/fred",
    "{/half,who}": "/50%25/fred",
    "{/who,dub}": "/fred/me%2Ftoo",
    "{/var,empty}": "/value/",
    "{/var,undef}": "/value",
    "{/var:1,var}": "/v/value",
    "{/list}": "/red,green,blue",
    "{/list*}": "/red/green/blue",
    "{;who}": ";who=fred",
    "{;empty}": ";empty",
    "{;v,empty,who}": ";v=6;empty;who=fred",
    "{;list}": ";list=red,green,blue",
    "{;list*}": ";list=red;list=green;list=blue",
    "{?who}": "?who=fred",
    "{?x,y,empty}": "?x=1024&y=768&empty=",
    "{?x,y,undef}": "?x=1024&y=768",
    "{?list}": "?list=red,green,blue",
    "{?list*}": "?list=red&list=green&list=blue",
    "?fixed=yes{&x}": "?fixed=yes&x=1024",
    "{&x,y,empty}": "&x=1024&y=768&empty=",
    "X{.empty_list}": "X",
    # literals are encoded, and escapes stay (section 3.1)
    "a b/é%2f{var}": "a%20b/%C3%A9%2fvalue",
}


@pytest.mark.parametrize("text", EXAMPLES)
def test_a_template_expands_as_the_rfc_says(text: str) -> None:
    assert template_from(text).expanded(VALUES) == EXAMPLES[text]


def test_an_escape_in_a_reserved_value_stays_and_is_encoded_elsewhere() -> None:
    values = {"x": "a%2Fb%zz"}
    assert template_from("{x}").expanded(values) == "a%252Fb%25zz"
    assert template_from("{+x}").expanded(values) == "a%2Fb%25zz"


def test_half_of_a_surrogate_pair_becomes_a_question_mark() -> None:
    assert template_from("a:{x}").expanded({"x": "\ud800"}) == "a:%3F"


@pytest.mark.parametrize(
    "text",
    ["a:{", "a:}", "a:{}", "a:{{x}}", "a:{x y}", "a:{=x}", "a:{x:0}", "a:{x**}", "a:{x,}", "{x}" * 101],
)
def test_a_text_that_is_no_template_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"brace|expression"):
        template_from(text)


def test_the_path_is_needed_and_a_query_is_not() -> None:
    template = template_from("a://{host}/{+path}{?q,path}{#part}{/more*}")
    assert template.variables == {"host": True, "path": True, "q": False, "part": False, "more": True}
    assert template.lists == {"more"}
