"""The proxy of the environment (`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`) for a URL.

A server on this machine is never reached through a proxy: the proxy would look for it on the proxy's machine.
"""

from __future__ import annotations

from urllib.request import getproxies, proxy_bypass

import httpcore2

from bridge.http.request_checks import is_loopback

_KINDS = ("http", "https")


def proxy_of(scheme: str, host: str, port: int | None = None) -> str | None:
    """The URL of the proxy for an origin; None if the origin is reached without a proxy.

    Raises:
        httpcore2.ProxyError: the proxy's URL has another scheme than http or https.
    """
    if is_loopback(host):
        return None
    proxies = getproxies()
    url = proxies.get(scheme) or proxies.get("all")
    if not url or proxy_bypass(host if port is None else f"{host}:{port}"):
        return None
    url = url if "://" in url else f"http://{url}"
    if url.partition("://")[0].lower() not in _KINDS:
        kind = url.partition("://")[0]
        raise httpcore2.ProxyError(
            f"the proxy of the environment has the scheme {kind!r}, and only http and https are supported:"
            ' name the server in NO_PROXY, or set `proxy = "none"` for it'
        )
    return url
