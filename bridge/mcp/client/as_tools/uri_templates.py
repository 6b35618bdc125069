"""Expands URI templates. Pure.

A template is read once: its literal pieces are encoded as RFC 6570 wants, and each expression becomes its operator and
its variables. A value is a text, or a list of texts. Other systems' variables (objects) are not in MCP, whose arguments
are texts.

Spec: RFC 6570 (levels 1 to 4, without associative arrays), MCP 2026-07-28 server/resources (resource templates).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

Value = str | Sequence[str]

_UNRESERVED: Final = "-._~"
"""Characters that are never encoded, besides ASCII letters and digits."""
_RESERVED: Final = ":/?#[]@!$&'()*+,;="
_ESCAPE: Final = re.compile(r"(%[0-9A-Fa-f]{2})")
_PIECE: Final = re.compile(r"\{([^{}]*)\}|([{}])")
_VARIABLE: Final = re.compile(
    r"((?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})(?:\.?(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2}))*)(?::([1-9][0-9]{0,3})|(\*))?"
)
_EXPRESSIONS_MOST: Final = 100
"""The most expressions of one template. A form of a hundred fields is no address that a person would write."""


@dataclass(frozen=True, slots=True)
class Operator:
    """How the values of an expression are written. Spec: RFC 6570 appendix A."""

    first: str
    between: str
    is_named: bool = False
    if_empty: str = ""
    allows_reserved: bool = False
    is_optional: bool = False
    """Whether a caller usually leaves variables out: a query, a parameter, a fragment."""


_OPERATORS: Final[Mapping[str, Operator]] = {
    "": Operator("", ","),
    "+": Operator("", ",", allows_reserved=True),
    "#": Operator("#", ",", allows_reserved=True, is_optional=True),
    ".": Operator(".", "."),
    "/": Operator("/", "/"),
    ";": Operator(";", ";", is_named=True, is_optional=True),
    "?": Operator("?", "&", is_named=True, if_empty="=", is_optional=True),
    "&": Operator("&", "&", is_named=True, if_empty="=", is_optional=True),
}


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable of an expression."""

    name: str
    prefix: int | None = None
    """How many characters of the value are used; None uses all."""
    is_exploded: bool = False


@dataclass(frozen=True, slots=True)
class Expression:
    """An operator and its variables."""

    operator: Operator
    variables: tuple[Variable, ...]


@dataclass(frozen=True, slots=True)
class UriTemplate:
    """A template that was read."""

    pieces: tuple[str | Expression, ...]

    @property
    def variables(self) -> dict[str, bool]:
        """The variables in their order, each with whether the template needs it."""
        needed: dict[str, bool] = {}
        for piece in self.pieces:
            if isinstance(piece, Expression):
                for variable in piece.variables:
                    is_needed = needed.get(variable.name, False) or not piece.operator.is_optional
                    needed[variable.name] = is_needed
        return needed

    @property
    def lists(self) -> frozenset[str]:
        """The variables that may be lists: those with `*`."""
        expressions = (piece for piece in self.pieces if isinstance(piece, Expression))
        return frozenset(
            variable.name
            for expression in expressions
            for variable in expression.variables
            if variable.is_exploded
        )

    def expanded(self, values: Mapping[str, Value]) -> str:
        """The URI with these values. A variable without a value is left out."""
        return "".join(piece if isinstance(piece, str) else _expanded(piece, values) for piece in self.pieces)


def template_from(text: str) -> UriTemplate:
    """Read a template.

    Raises:
        ValueError: the text is no template of RFC 6570, or has too many expressions.
    """
    pieces: list[str | Expression] = []
    at = 0
    for match in _PIECE.finditer(text):
        if match[2]:
            raise ValueError("it has a brace without its pair")
        if literal := _encoded(text[at : match.start()], allows_reserved=True):
            pieces.append(literal)
        pieces.append(_expression(match[1]))
        at = match.end()
    if literal := _encoded(text[at:], allows_reserved=True):
        pieces.append(literal)
    if sum(isinstance(piece, Expression) for piece in pieces) > _EXPRESSIONS_MOST:
        raise ValueError(f"it has more than {_EXPRESSIONS_MOST} expressions")
    return UriTemplate(tuple(pieces))


def _expression(text: str) -> Expression:
    sign = text[:1] if text[:1] in _OPERATORS else ""
    variables = []
    for spec in text[len(sign) :].split(","):
        if (match := _VARIABLE.fullmatch(spec)) is None:
            raise ValueError(f"{{{text[:40]}}} is no expression of RFC 6570")
        variables.append(Variable(match[1], int(match[2]) if match[2] else None, bool(match[3])))
    return Expression(_OPERATORS[sign], tuple(variables))


def _expanded(expression: Expression, values: Mapping[str, Value]) -> str:
    operator = expression.operator
    texts = [
        text
        for variable in expression.variables
        if variable.name in values
        for text in _texts_of(variable, values[variable.name], operator)
    ]
    return operator.first + operator.between.join(texts) if texts else ""


def _texts_of(variable: Variable, value: Value, operator: Operator) -> list[str]:
    """What an expression writes of one variable. An empty list counts as no value."""
    if isinstance(value, str):
        cut = value if variable.prefix is None else value[: variable.prefix]
        return [_named(variable.name, _encoded(cut, operator.allows_reserved), operator)]
    items = [_encoded(item, operator.allows_reserved) for item in value]
    if variable.is_exploded:
        return [_named(variable.name, item, operator) for item in items]
    return [_named(variable.name, ",".join(items), operator)] if items else []


def _named(name: str, text: str, operator: Operator) -> str:
    if not operator.is_named:
        return text
    return f"{name}={text}" if text else f"{name}{operator.if_empty}"


def _encoded(text: str, allows_reserved: bool) -> str:
    """A text with percent-encoding. Where reserved characters are allowed, existing escapes stay, too."""
    if not allows_reserved:
        return quote(text, safe=_UNRESERVED, errors="replace")
    pieces = _ESCAPE.split(text)
    return "".join(
        piece if at % 2 else quote(piece, safe=_UNRESERVED + _RESERVED, errors="replace")
        for at, piece in enumerate(pieces)
    )
