"""Words that may change what a sentence asks for: a negation, a condition, another time, a second request. Pure.

The lists hold frequent words of several languages. They need not be complete: a word too many makes the agent ask, and
quotation marks around a value end the doubt.
"""

from __future__ import annotations

import re
from typing import Final

_OTHERWISE_WORDS: Final = (
    # English
    "no not never none neither nor hardly barely scarcely cannot without except excluding instead rather",
    "stop cancel abort undo",
    "if unless when whenever only but until till while before after once otherwise whether provided later tomorrow",
    # German, Dutch
    "nicht kein keine keinen keinem keiner nie niemals ohne außer statt wenn falls sobald aber sondern bevor nachdem",
    "niet geen nooit zonder behalve als wanneer indien tenzij maar voordat nadat totdat",
    # French, Spanish, Italian, Portuguese
    "ne pas jamais sans sauf aucun aucune quand lorsque mais sinon avant après",
    "nunca jamás sin excepto salvo cuando pero sino antes después hasta",
    "non mai senza tranne eccetto né quando però prima dopo finché",
    "não sem exceto nem quando mas depois até",
    # Polish, Russian
    "nie nigdy bez oprócz jeśli jeżeli gdy kiedy chyba ale lecz zanim dopóki",
    "не нет никогда без кроме если когда пока но либо после перед только",
)
_OTHERWISE_BETWEEN: Final = "si se ma ni"
"""Such words count only between other words: they are names, too."""
_OTHERWISE_PARTS: Final = (
    "不 别 別 没有 沒有 勿 如果 要是 假如 除非 但是 只有 之前 之后 之後",
    "ない ません もし なら たら れば けど でも やめ まで 以外",
    "않 말고 만약",
)
"""Parts of texts in scripts without spaces between words, or with endings: Chinese, Japanese, Korean."""
_SECOND_REQUEST_WORDS: Final = (
    "and or then also plus afterwards afterward next followed",
    "und oder dann danach sowie anschließend daarna vervolgens",
    "et puis ensuite luego entonces también poi quindi inoltre então também",
    "lub albo oraz potem następnie или потом затем также",
)
_MANNER_WORDS: Final = "again now twice today tonight yesterday immediately soon slowly quickly asap"
"""Words that say how or when, if they end a value: "greet Ada twice"."""
_SECOND_REQUEST_BETWEEN: Final = "y e o u i en dan ou и"
_SECOND_REQUEST_PARTS: Final = "然后 然後 接着 以及 并且 和 跟 それから そして および 그리고 다음에"


def _choices(*lists: str) -> str:
    return "|".join(word for words in lists for word in words.split())


def _pattern(words: str, between: str, parts: str) -> str:
    bounded = rf"(?:^|(?<=[\s(\['*_]))(?:{words}|\w+n['\u2019]t|dont|wont|cant)(?=$|[\s)\]'*_.,;:!?])"
    return rf"{bounded}|(?<=\s)(?:{between})(?=\s)|{parts}"


_OTHERWISE: Final = re.compile(
    _pattern(_choices(*_OTHERWISE_WORDS), _choices(_OTHERWISE_BETWEEN), _choices(*_OTHERWISE_PARTS)),
    re.IGNORECASE,
)
_DOUBTFUL: Final = re.compile(
    _pattern(
        _choices(*_OTHERWISE_WORDS, *_SECOND_REQUEST_WORDS),
        _choices(_OTHERWISE_BETWEEN, _SECOND_REQUEST_BETWEEN),
        _choices(*_OTHERWISE_PARTS, _SECOND_REQUEST_PARTS),
    )
    + r"|[,;:.!?\u2026](?=\s)|[\u3002\uff01\uff1f\uff0c\uff1b\u3001\u060c\u061b\u061f]"
    r"|[\"\u201c\u201d\u201e\u00ab\u00bb]"
    r"|&&|\|\||(?<=\s)[&+|\u2013\u2014-](?=\s)|[\x00-\x1f\x7f\xad\u200b\u2028-\u202e\u2060-\u2069\ufeff]",
    re.IGNORECASE,
)
_NO_DIRECT_VALUE: Final = frozenset(
    (
        *("it", "this", "that", "them", "these", "those", "him", "her", "me", "us", "you", "one", "both"),
        *("everything", "something", "anything", "nothing", "everyone", "someone", "anyone"),
        *("all", "some", "any", "things", "stuff"),
        *(
            "here",
            "there",
            "somewhere",
            "nowhere",
            "somebody",
            "nobody",
            "none",
            "now",
            "today",
            "yesterday",
            "again",
            "out",
            "up",
        ),
        *("file", "files", "folder", "folders", "directory", "directories"),
    )
)
"""Words that stand for something said before, or for nothing certain."""
_LINKS: Final = (
    "about at by for from in into of off on onto out over to under up with as",
    "that this these those which who whom whose what whatever where how why",
)
_LINK_WORDS: Final = frozenset(" ".join(_LINKS).split())
_CLAUSE: Final = re.compile(
    rf"(?:{_choices(*_LINKS)})(?:['\u2019]\w+)?\s|.*\s(?:{_choices(_MANNER_WORDS)})$",
    re.IGNORECASE | re.DOTALL,
)
"""A value that only describes what is meant, or is no value alone: "delete the entities that are old", "forget about
Ada", "greet Ada twice"."""


_ADJUNCT_WORDS: Final = (
    "about across after against although as assuming at because before by during every for from given hence in inside",
    "into like near on onto over per regarding since so than that though through throughout to toward towards under",
    "upon using via where which while whilst who whom whose with within",
    "auf bei für mit um wegen weil avec chez pendant pour con para por porque con per",
)
_DAY_WORDS: Final = "monday tuesday wednesday thursday friday saturday sunday weekday weekend noon midnight"
_POINTING_WORDS: Final = (
    "it him her them me us you my your his their its our myself yourself himself herself itself ourselves yourselves",
    "themselves mine yours whoever whomever anyone anybody everyone everybody someone somebody no-one nothing nobody",
    "all each both some any several",
)
_COUNT_WORDS: Final = "two three four five six seven eight nine ten eleven twelve"
_NO_NAME: Final = re.compile(
    rf"(?:^|(?<=\s))(?:{_choices(*_ADJUNCT_WORDS)})(?=$|\s)"
    rf"|(?<=\s)(?:{_choices(_DAY_WORDS)})(?=$|\s)"
    rf"|^(?:{_choices(*_POINTING_WORDS)})(?=$|\s)|^the (?:same|other)(?=$|\s)|^(?-i:home)$"
    rf"|^(?:(?-i:{_choices(_COUNT_WORDS)})|\d+)\s"
    r"|(?<=\s)\d+(?=\s)|(?<=\s)\d[^\s.]*[^\d\s.][^\s.]*(?=$|\s)"
    r"|(?<=\s)(?-i:[a-z]+ly)$|['\u2019]s\s(?-i:[a-z])"
    r"|(?:^|(?<=\s))['\u2018`]|\*\*|(?<=\s)(?:--?\w|[#@<({\[$\u20ac\u00a3\u00a5]|[^\w\s]+(?=$|\s))",
    re.IGNORECASE,
)
"""Words and marks that are more likely about the request than a part of a name: "Ada in French", "Lisbon 12 May", "my
friend", "two people", "Ada loudly", "Ada's email", "Ada #urgent"."""
_PARTICLES: Final = frozenset(
    (
        *(
            "of",
            "the",
            "de",
            "la",
            "le",
            "les",
            "du",
            "des",
            "del",
            "della",
            "di",
            "da",
            "do",
            "dos",
            "das",
            "van",
        ),
        *("von", "der", "den", "ter", "zu", "zum", "zur", "bin", "ibn", "ben", "al", "el", "am", "an", "im"),
    )
)
"""Words in lower case that stand inside names: "Ludwig van Beethoven"."""


def is_link(word: str) -> bool:
    """Whether a word links what stands before it with a value: it is no part of the value."""
    return word in _LINK_WORDS


def says_otherwise(text: str) -> bool:
    """Whether a text beside a sentence holds a negation or a condition."""
    return _OTHERWISE.search(text) is not None


def is_doubtful(value: str) -> bool:
    """Whether a value without quotation marks may be about the request instead: it holds a negation, a condition, a
    second request, an end of a sentence, a quotation mark without its partner, or a sign that hides what is written; or
    it stands for something else, or only describes it."""
    if _CLAUSE.match(value) is not None or value.casefold() in _NO_DIRECT_VALUE:
        return True
    return _DOUBTFUL.search(value) is not None


def is_no_name(value: str) -> bool:
    """Whether a value without quotation marks is probably no name, but holds words about the request, or describes or
    points at what is meant. For arguments that take any text, such words are a part of the text."""
    if _NO_NAME.search(value) is not None:
        return True
    first, *others = value.split()
    # "Ada three times", "/data two levels deep"
    is_written_as_name = first[0].isupper() or "/" in first
    return is_written_as_name and any(
        word[0].islower() and word not in _PARTICLES and "." not in word for word in others
    )
