"""Makes a site of the pages for MkDocs: the navigation is that of index.md, and links to other files of the repository
lead to the repository. A link to a file that does not exist ends the build.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
_LINK: Final = re.compile(r"\]\((?!\w+:|#)([^)\s#]+)(#[^)\s]*)?\)")
_SECTION: Final = re.compile(r"^## (.+)\n\n((?:- .*\n?)+)", re.MULTILINE)
_ENTRY: Final = re.compile(r"^- \[(.+?)\]\(([\w/.-]+\.md)\)", re.MULTILINE)


def on_config(config: Any) -> Any:
    """Take the navigation from the lists of index.md. Pages outside of docs/ are not in it."""
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    nav: list[Any] = [{"Overview": "index.md"}]
    for section, entries in _SECTION.findall(text):
        pages = [{title: path} for title, path in _ENTRY.findall(entries) if not path.startswith("..")]
        nav.append({section: pages})
    config.nav = nav
    return config


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Lead links to files outside of docs/ to the repository."""
    folder = posixpath.dirname(posixpath.join("docs", page.file.src_uri))

    def led(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, found[1]))
        if path.startswith("docs/") and path.endswith((".md", ".png", ".svg")):
            return found[0]
        if not (ROOT / path).exists():
            raise FileNotFoundError(f"{page.file.src_uri}: there is no {path}")
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"]({config.repo_url}/{kind}/main/{path}{found[2] or ''})"

    return _LINK.sub(led, markdown)
