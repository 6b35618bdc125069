"""The site of the pages: its navigation, and the links that leave docs/. `make docs` builds it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

import pytest
import yaml

from docs import site
from tests.support.command import ROOT

DOCS: Final = ROOT / "docs"


def nav() -> list[dict[str, Any]]:
    """The navigation of the site."""
    made: list[dict[str, Any]] = site.on_config(SimpleNamespace(nav=None)).nav
    return made


def led(markdown: str, page: str = "guides/a.md") -> str:
    """The text of a page, with its links led out of docs/."""
    place = SimpleNamespace(file=SimpleNamespace(src_uri=page))
    return site.on_page_markdown(
        markdown, page=place, config=SimpleNamespace(repo_url="https://example.com/r")
    )


def test_every_page_but_the_decisions_is_in_the_navigation() -> None:
    listed = {
        path
        for section in nav()[1:]
        for pages in section.values()
        for page in pages
        for path in page.values()
    }
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    wanted = {page for page in pages if not page.startswith("decisions/0")} - {"index.md"}
    assert wanted - listed == set()
    assert listed - pages == set()


def test_a_link_within_the_docs_stays() -> None:
    text = "[a](../mapping.md#content) [b](https://example.com) [c](#here)"
    assert led(text) == text


def test_a_link_to_another_file_leads_to_the_repository() -> None:
    assert led("[a](../../SECURITY.md#report)") == "[a](https://example.com/r/blob/main/SECURITY.md#report)"
    assert led("[a](../examples)", "x.md") == "[a](https://example.com/r/tree/main/examples)"


def test_a_link_to_nothing_ends_the_build() -> None:
    with pytest.raises(FileNotFoundError, match="no examples/nothing"):
        led("[a](../examples/nothing.md)", "x.md")


def test_the_site_is_built_strictly() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").replace("!ENV ", "")
    config = yaml.safe_load(text)
    assert config["strict"]
    assert config["validation"]["links"]["anchors"] == "warn"
    assert config["theme"]["font"] is False, "no page asks another site for its fonts"
