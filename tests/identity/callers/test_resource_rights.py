"""Which resources globs allow, however a URI is spelled, and which templates may lead to one of them."""

from __future__ import annotations

import pytest

from bridge.identity.callers.principals import Principal
from bridge.identity.callers.resource_rights import (
    expanded,
    may_become,
    may_lead_there,
    may_use,
    normalised,
    scheme_of,
)

PUBLIC = ("note:///public/*",)


@pytest.mark.parametrize(
    "uri",
    [
        "note:///public/a",
        "NOTE:///public/a",
        "note:///%70ublic/a",
        "note:///public/a%2Fb",
        "note:///public/..a/b..",
        "note:///public/50%25",
        "note:///public/é",
        "note:///public/a?x=1#y",
    ],
)
def test_a_rule_holds_however_its_resource_is_spelled(uri: str) -> None:
    assert may_use(PUBLIC, uri)


@pytest.mark.parametrize(
    "uri",
    [
        "note:///secret/a",
        "note:///public",
        "note:///Public/a",
        "note://public/a",
        "note:///public/../secret/a",
        "note:///public/%2e%2e/secret/a",
        "note:///public/%2E./secret/a",
        "note:///public/x%2F..%2F..%2Fsecret/a",
        "note:///public/%252e%252e/secret/a",
        "note:///public/%25252e%25252e/secret/a",
        "note:///public/..%5csecret",
        "note:///public/..\\secret",
        "note:///public/a/..",
        "note:///public/..;x/secret",
        "note:///public/\uff0e\uff0e/secret/a",
        "note:///public/\u2025/secret/a",
        "note:///public/.\t./secret/a",
        "note:///public/.%09./secret/a",
        "note:///public/%00",
        "note:///public/?path=../secret",
        "note:///public/" + ("%" + "25" * 20 + "2e") * 2 + "/secret",
        " note:///public/a",
        "other:note:///public/a",
        "",
    ],
)
def test_a_rule_is_not_got_round(uri: str) -> None:
    assert not may_use(PUBLIC, uri)


def test_no_rule_allows_nothing_and_a_star_allows_everything() -> None:
    assert not may_use((), "note:///public/a")
    assert may_use(("*",), "note:///public/../%00")


@pytest.mark.parametrize(
    ("first", "other"),
    [
        ("HTTPS://Docs.Example:443/a", "https://docs.example/a"),
        ("http://docs.example:80", "http://docs.example/"),
        ("https://docs.example./%7ea%c3%a9", "https://docs.example/~aé"),
        ("https://bücher.example/x", "https://xn--bcher-kva.example/x"),
        ("https://b%C3%BCcher.example/x", "https://xn--bcher-kva.example/x"),
        ("urn:A:b%2d", "urn:A:b-"),
    ],
)
def test_equivalent_uris_are_judged_alike(first: str, other: str) -> None:
    assert normalised(first) == normalised(other)
    assert may_use((first,), other)
    assert may_use((other,), first)


@pytest.mark.parametrize(
    "uri",
    [
        "https://docs.example@evil/x",
        "https://evil/docs.example/",
        "https://docs.example.evil/x",
        "https://evil\\@docs.example/",
    ],
)
def test_a_rule_for_a_host_holds_for_no_other_host(uri: str) -> None:
    assert not may_use(("https://docs.example/*",), uri)


@pytest.mark.parametrize(
    ("template", "may"),
    [
        ("note:///public/{name}", True),
        ("note:///{+path}", True),
        ("{+anything}", True),
        ("note:///public/{a}/{b}", True),
        ("note:///secret/{name}", False),
        ("other:///{name}", False),
        ("note:///public/a", True),
        ("note:///secret/a", False),
    ],
)
def test_a_template_is_shown_if_a_rule_may_allow_what_it_becomes(template: str, may: bool) -> None:
    assert may_lead_there(PUBLIC, template) is may
    assert may_lead_there(("*",), template)
    assert not may_lead_there((), template)


def test_a_rule_for_one_resource_fits_a_template_that_becomes_it() -> None:
    assert may_lead_there(("note:///a/b",), "note:///{x}/b")
    assert not may_lead_there(("note:///a/b",), "note:///{x}/c")


@pytest.mark.parametrize(
    ("template", "values", "uri"),
    [
        ("n:{a}", {"a": "x/y z"}, "n:x%2Fy%20z"),
        ("n:{+a}", {"a": "x/y"}, "n:x/y"),
        ("n:{#a}", {"a": "x"}, "n:#x"),
        ("n:{/a,b}", {"a": "x", "b": "y"}, "n:/x/y"),
        ("n:{?a,b}", {"a": "x", "b": "y"}, "n:?a=x&b=y"),
        ("n:{;a*}", {"a": "x"}, "n:;a=x"),
        ("n:{.a:3}", {"a": "x"}, "n:.x"),
        ("n:{a}{b}", {"a": "x"}, "n:x*"),
        ("n:{?a,b}", {"b": "y"}, "n:*b=y*"),
    ],
)
def test_a_template_is_expanded_as_far_as_its_values_are_known(
    template: str, values: dict[str, str], uri: str
) -> None:
    assert expanded(template, values) == uri


def test_a_value_is_judged_by_what_the_template_becomes() -> None:
    template = "note:///{+path}"
    assert may_become(PUBLIC, template, {"path": "public/a"})
    assert not may_become(PUBLIC, template, {"path": "secret/a"})
    assert not may_become(PUBLIC, template, {"path": "public/../secret"})
    assert may_become(("repo://me/pub*",), "repo://{owner}/{name}", {"owner": "me"})
    assert not may_become(("repo://me/pub*",), "repo://{owner}/{name}", {"owner": "you"})


def test_the_scheme_is_found_in_any_spelling() -> None:
    assert scheme_of(" FILE:/x") == "file"
    assert scheme_of("file:{+path}") == "file"
    assert scheme_of("{scheme}:x") == ""


def test_rules_for_one_agent_hold_there_alone() -> None:
    principal = Principal(
        "bob", skills=("x",), resources=("desk/note:///*", "web://h/*"), prompts=("desk/gr*",)
    )
    desk, other = principal.in_face("desk"), principal.in_face("other")
    assert desk.resource_globs == ("note:///*", "web://h/*")
    assert other.resource_globs == ("web://h/*",)
    assert desk.may_use_prompt("greet")
    assert not other.may_use_prompt("greet")


def test_without_rules_only_a_principal_with_everything_gets_resources() -> None:
    assert Principal("ann").resource_globs == ("*",)
    assert Principal("ann").in_face("desk").prompt_globs == ("*",)
    assert Principal("bob", skills=("echo",)).resource_globs == ()
    assert Principal("bob", skills=("desk/*",)).in_face("desk").resource_globs == ()
    assert Principal("corp:bob", scopes=(("read", ("*",)),)).in_face("desk").resource_globs == ()
