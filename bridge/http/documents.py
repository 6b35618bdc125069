"""Fetches a JSON document from an unknown server, with bounds on size, time and the addresses of the server.

It follows no redirect and decompresses nothing: a small compressed answer can expand to a huge one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

import anyio
import httpx2

from bridge.errors import PeerError, reason_of
from bridge.http.client import guarded_by
from bridge.http.private_addresses import AddressGuard, PrivateAddressError
from bridge.text.jsonvalues import holds_more_values

_HEADERS: Final[Mapping[str, str]] = {"Accept": "application/json", "Accept-Encoding": "identity"}
_VALUES: Final = 100_000
"""The most values and keys in a document, counted before the JSON is parsed."""


class DocumentError(PeerError):
    """A document could not be fetched. The message says why, and names no secret."""


class MissingDocumentError(DocumentError):
    """The server answers that it has no such document."""


@dataclass(frozen=True, slots=True)
class DocumentLimits:
    """The bounds of a document."""

    total_bytes: int
    seconds: float


async def fetched_json(
    http: httpx2.AsyncClient, request: httpx2.Request, limits: DocumentLimits, guard: AddressGuard | None
) -> object:
    """The JSON value in the answer to a request.

    Raises:
        MissingDocumentError: the answer has a status of 4xx.
        DocumentError: no answer comes in time, its status is not 200, it is too large, or it is not JSON.
    """
    request.headers.update(_HEADERS)
    request.extensions = {**request.extensions, **guarded_by(guard)}
    where = _url_of(request)
    try:
        with anyio.fail_after(limits.seconds):
            body = await _body(http, request, limits.total_bytes, where)
    except PrivateAddressError as exc:
        raise DocumentError(str(exc)) from exc
    except TimeoutError as exc:
        raise DocumentError(f"{where} gave no answer within {limits.seconds:g} s") from exc
    except httpx2.HTTPError as exc:
        raise DocumentError(f"{where} cannot be reached: {reason_of(exc)}") from exc
    if holds_more_values(body, _VALUES):
        raise DocumentError(f"{where} gave more than {_VALUES} values")
    try:
        value: object = json.loads(body)
    except (ValueError, RecursionError) as exc:
        raise DocumentError(f"{where} gave an answer that is not JSON") from exc
    return value


async def _body(http: httpx2.AsyncClient, request: httpx2.Request, limit_bytes: int, where: str) -> bytes:
    response = await http.send(request, stream=True, follow_redirects=False)
    try:
        if response.is_client_error:
            raise MissingDocumentError(f"{where} answered with {response.status_code}")
        if response.status_code != HTTPStatus.OK:
            raise DocumentError(f"{where} answered with {response.status_code}")
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise DocumentError(f"{where} answered with a compressed body, which was not requested")
        chunks, size = [], 0
        async for chunk in response.aiter_raw():
            chunks.append(chunk)
            size += len(chunk)
            if size > limit_bytes:
                raise DocumentError(f"{where} gave more than {limit_bytes} bytes")
        return b"".join(chunks)
    finally:
        with anyio.CancelScope(shield=True):
            await response.aclose()


def _url_of(request: httpx2.Request) -> str:
    url = urlsplit(str(request.url))
    return f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"
