"""The language of phrases, and templates that are meant to take long."""

from __future__ import annotations

import time

import pytest

from bridge.translate.language.phrases import Phrase, ReadingSteps, TooAmbiguousError, sentence_of
from bridge.translate.language.plain_words import PhraseBook, SkillWords
from bridge.translate.language.templates import TemplateError, expansions, template_of
from tests.support.tools import tool

TEXTS = tool("t", **{name: {"type": "string"} for name in "abcd"})
COSTLY = [
    "{a} x {b} {c} {d}",
    " ".join(["[{a}]"] * 60) + " x",
    "x " + "[{a}] [{b}] " * 20,
    "[a] " * 60 + "b",
    "(" * 10 + "a" + ")" * 10 + " {a}",
    "(a|a|a|a) " * 20 + "{a}",
]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{a}", "a phrase without a word of its own would match every sentence"),
        ("[please] {a}", "a phrase without a word of its own would match every sentence"),
        ("(x|{a})", "a phrase without a word of its own would match every sentence"),
        ("", "a phrase has no empty choices"),
        ("do (a", "`(` has no partner"),
        ("do a]", "`]` has no partner"),
        ("do (a]", "`]` has no partner"),
        ("do (a|) x", "a phrase has no empty choices"),
        ("do {a", "`{` has no partner"),
        (
            "do {}",
            "`{}` is not {name}, {name:word}, {name:path}, {name:file}, {name:folder}, {name:time} or {name=value}",
        ),
        (
            "do {a:number}",
            "`{a:number}` is not {name}, {name:word}, {name:path}, {name:file}, {name:folder}, {name:time} or"
            " {name=value}",
        ),
        ("x " * 251, "a phrase has at most 500 characters"),
        ("[a]" * 160, "a phrase has too many words and brackets"),
        ("(" * 12 + "a" + ")" * 12, "a phrase has at most 10 brackets inside each other"),
    ],
)
def test_a_template_that_is_not_right_says_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(TemplateError) as refused:
        template_of(text)

    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("text", "sentence", "arguments"),
    [
        ("go to {a}", "Go to  Rome", {"a": "Rome"}),
        ("go [right now] to {a}", "go right now to Rome", {"a": "Rome"}),
        ("go (to|from) {a} [by {b}]", "go from Rome by train", {"a": "Rome", "b": "train"}),
        ("go to [the] {a}", "go to the sea", {"a": "sea"}),
        ("go {a:word} {b=fast}", "go home", {"a": "home", "b": "fast"}),
        ("go {a:word}", "go 'a b'", {"a": "a b"}),
        ("say {a}", "say O'Brien's  book", {"a": "O'Brien's  book"}),
        ("say {a}, {b:word}", "say x, y", {"a": "x", "b": "y"}),
        ("it's {a}", "it\u2019s x", {"a": "x"}),
        ("go {a}", "go .", {"a": "."}),
        ("go {a}", "go ..", {"a": ".."}),
        ("go {a:word}", "go a b", None),
        ("go {a}", "went x", None),
    ],
)
def test_a_sentence_fits_a_template(text: str, sentence: str, arguments: dict[str, str] | None) -> None:
    words = sentence_of(sentence)
    assert words is not None

    reading = Phrase(template_of(text), TEXTS).reading_of(words, ReadingSteps())

    assert (None if reading is None else reading.arguments) == arguments


def test_the_first_expansion_has_all_that_may_be_absent() -> None:
    (first, *_) = expansions(template_of("go (to|from) [the] sea"))

    assert first == ("go", "to", "the", "sea")


@pytest.mark.parametrize("text", COSTLY)
@pytest.mark.parametrize("sentence", ["x " * 99 + "y", "a " * 99 + "c", "x q " * 49 + "y"])
def test_costly_templates_end_within_their_steps(text: str, sentence: str) -> None:
    book = PhraseBook([SkillWords("t", ("t",), TEXTS, own=(text,) * 50)])
    before = time.process_time()

    book.find(sentence)

    assert (
        time.process_time() - before < 5
    )  # a hundred times what it takes; without bounds it would take years


def test_a_phrase_that_is_too_ambiguous_makes_the_agent_ask() -> None:
    words = sentence_of("x " * 99)
    assert words is not None

    with pytest.raises(TooAmbiguousError):
        Phrase(template_of("x {a} {b} {c} {d}"), TEXTS).reading_of(words, ReadingSteps(100))
