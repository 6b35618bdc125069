"""The bounds of the bridge's own code: a reader can take in each function, module and folder, and each class name.

A function is counted from its `def` to its last line, with its docstring and without its decorators. A module is
counted in lines of code, without blank lines, comments and docstrings. A folder is counted in its modules, with
`__init__.py`.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import bridge

FUNCTION_LINES: Final = 60
MODULE_LINES: Final = 500
FOLDER_MODULES: Final = 24

ROOT: Final = Path(bridge.__file__).parent


@cache
def _modules() -> dict[Path, tuple[str, ast.Module]]:
    """The text and the tree of each module, by its path below the package."""
    texts = {path.relative_to(ROOT): path.read_text("utf-8") for path in sorted(ROOT.rglob("*.py"))}
    return {path: (text, ast.parse(text)) for path, text in texts.items()}


def test_a_function_has_at_most_sixty_lines() -> None:
    long = {
        f"{path}: {node.name}": _lines_of(node)
        for path, (_, tree) in _modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _lines_of(node) > FUNCTION_LINES
    }
    assert long == {}


def test_a_module_has_at_most_five_hundred_lines_of_code() -> None:
    lines = {str(path): _code_lines(text, tree) for path, (text, tree) in _modules().items()}
    assert {path: count for path, count in lines.items() if count > MODULE_LINES} == {}
    assert lines["errors.py"] > 0


def test_a_folder_has_at_most_twenty_four_modules() -> None:
    folders = Counter(str(path.parent) for path in _modules())
    assert {folder: count for folder, count in folders.items() if count > FOLDER_MODULES} == {}


def test_a_class_name_stands_for_one_class() -> None:
    places: defaultdict[str, set[Path]] = defaultdict(set)
    for path, (_, tree) in _modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].add(path)
    assert {name: sorted(map(str, paths)) for name, paths in places.items() if len(paths) > 1} == {}


def _lines_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def _code_lines(text: str, tree: ast.Module) -> int:
    strings = set(_lines_of_docstrings(tree))
    return sum(
        bool(line.strip()) and not line.lstrip().startswith("#") and number not in strings
        for number, line in enumerate(text.splitlines(), start=1)
    )


def _lines_of_docstrings(tree: ast.Module) -> Iterator[int]:
    """The lines of strings that stand alone: docstrings, and the descriptions of attributes."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            assert node.end_lineno is not None
            yield from range(node.lineno, node.end_lineno + 1)
