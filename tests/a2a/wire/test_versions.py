"""Which versions are served."""

from __future__ import annotations

import pytest

from bridge.a2a.model.errors import VERSION_NOT_SUPPORTED, A2AError
from bridge.a2a.wire.versions import VERSIONS


@pytest.mark.proves("a2a-3.6.1-version-query")
@pytest.mark.parametrize("asked", ["1.0", "1.0.0", "1.0.17", " 1.0 "])
def test_the_patch_number_is_ignored(asked: str) -> None:
    assert VERSIONS.require(asked, "JSONRPC").version == "1.0"


@pytest.mark.proves("a2a-3.6.2-version")
@pytest.mark.parametrize("asked", [None, "", "  ", "0.3", "0.3.0"])
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
def test_an_empty_version_means_0_3_in_every_binding(asked: str | None, binding: str) -> None:
    dialect = VERSIONS.require(asked, binding)
    assert (dialect.version, dialect.bindings[0]) == ("0.3", binding)


@pytest.mark.proves("a2a-3.6.2-version")
@pytest.mark.parametrize(
    ("asked", "requested"),
    [
        *((said, said) for said in ("0.2", "0.2.6", "1", "1.", "1.1", "1.9", "2.0", "10.0", "01.0", "1.00")),
        *((said, said) for said in ("1.0.0.0", "v1.0", "1.0-rc1", "1.0, 0.3", "one")),
    ],
)
def test_any_other_version_is_refused_as_not_supported(asked: str | None, requested: str) -> None:
    with pytest.raises(A2AError) as refused:
        VERSIONS.require(asked, "JSONRPC")
    assert refused.value.kind is VERSION_NOT_SUPPORTED
    assert refused.value.metadata == {"requested": requested, "supported": "1.0, 0.3, 0.1"}
