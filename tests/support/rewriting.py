"""Rewrites the asserts of test modules in a second process, while the first process collects the tests.

pytest rewrites each test module as it imports the module, and keeps the result beside the module. In a new clone that
is more than half of the collection, for which the other cores would wait. The second process takes the modules from
their end, the first process from their start, and where they meet the rest is there already.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.assertion import rewrite


def begin(config: pytest.Config) -> int | None:
    """Start the second process; its pid, or None where there is nothing to do."""
    if sys.dont_write_bytecode or not any(_not_rewritten(config)):
        return None
    if pid := os.fork():
        return pid
    try:
        state = config.stash[rewrite.assertstate_key]
        for file, kept in _not_rewritten(config):
            rewrite.try_makedirs(kept.parent)
            source_hash, code = rewrite._rewrite_test(file, config)
            rewrite._write_pyc(state, code, source_hash, kept)
    finally:
        os._exit(0)  # the first process tells of what cannot be rewritten


def _not_rewritten(config: pytest.Config) -> Iterator[tuple[Path, Path]]:
    """Test modules in the folders of the run, and where each is kept once it is rewritten. The last comes first."""
    for folder in config.args:
        for file in sorted(Path(folder).absolute().rglob("test_*.py"), reverse=True):
            kept = rewrite.get_cache_dir(file) / (file.stem + rewrite.PYC_TAIL)
            if not kept.exists() or kept.stat().st_mtime < file.stat().st_mtime:
                yield file, kept
