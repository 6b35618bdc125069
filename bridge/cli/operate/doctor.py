"""`mcp-a2a doctor`: shows the faults of a bridge, and the command that mends each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from bridge.errors import PeerError, UsageError

if TYPE_CHECKING:
    import httpx2

    from bridge.text.jsonvalues import JsonObject

_WAIT_SECONDS: Final = 30.0
_AT_FAULT: Final = 1
_MARKS: Final = {"good": "✓", "warn": "!", "bad": "✗"}


@click.command()
@click.argument("target", required=False, metavar="[FILE | URL]")
@click.option(
    "--bearer", metavar="env:NAME|file:PATH", help="With a URL: the token of an operator of the bridge."
)
@click.option(
    "--ca",
    type=click.Path(path_type=Path),
    help="With a URL: further certificate authorities to trust, a PEM file.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option(
    "--wait-seconds",
    type=click.FloatRange(min=0, min_open=True, max=3600),
    default=_WAIT_SECONDS,
    show_default=True,
    help="How long servers and agents may take to answer.",
)
def doctor(**options: Any) -> int:
    """Check everything that a bridge needs, and show the command that mends each fault.

    FILE defaults to bridge.toml in the current folder. With a file the command itself checks the store, the peers,
    credentials and their expiry, certificates, replicas and their plans, the audit, the disk and the clock. It also
    shows the last ten failed tasks with their reasons. It changes nothing, and a bridge may run on the same file.

    \b
    mcp-a2a doctor
    mcp-a2a doctor team.toml
    mcp-a2a doctor https://desk.example.com --bearer env:OPS_TOKEN
    mcp-a2a doctor --json | jq '.findings[] | select(.grade == "bad")'

    With a URL the command asks the bridge there, which tells an operator the same (`/healthz/findings`). Without the
    token of an operator the command learns only whether the bridge is ready (`/readyz`).

    Exit codes: 0 nothing is broken; 1 something is broken, or no bridge answers at the URL; 2 the file has mistakes, or
    the token is not an operator's.
    """
    import anyio

    target = options["target"] or ""
    is_url = target.startswith(("http://", "https://"))
    if not is_url and (options["bearer"] or options["ca"]):
        raise UsageError("--bearer and --ca go with the URL of a bridge")
    told = (
        anyio.run(_health_at_url, target, options)
        if is_url
        else _health_of_file(Path(target) if target else None, options)
    )
    if options["as_json"]:
        from bridge.cli import render

        render.write_document(json.dumps(told, indent=2, ensure_ascii=False) + "\n")
    else:
        _print(told)
    return 0 if told["ok"] else _AT_FAULT


def _health_of_file(file: Path | None, options: dict[str, Any]) -> JsonObject:
    import anyio

    from bridge.cli import logs
    from bridge.cli.serve import config_file, loaded_from, plan_of
    from bridge.process.doctor import health_of_file

    plan = plan_of(loaded_from(config_file(file), {}))
    logs.set_up("text", "error")
    return anyio.run(health_of_file, plan, options["wait_seconds"]).to_object()


async def _health_at_url(url: str, options: dict[str, Any]) -> JsonObject:
    """The health that the bridge at a URL reports.

    Raises:
        UsageError: the token is missing, or is not an operator's.
        PeerError: no bridge answers at the URL.
    """
    import httpx2

    from bridge.config.text.secrets import secret_from
    from bridge.http.client import GuardedClient
    from bridge.http.tls import load_authorities

    token = secret_from(options["bearer"]) if options["bearer"] else None
    if options["bearer"] and token is None:
        raise UsageError("--bearer takes env:NAME or file:PATH")
    context = httpx2.create_ssl_context()
    if options["ca"]:
        load_authorities(context, options["ca"])
    root = url.rstrip("/")
    async with GuardedClient(timeout=options["wait_seconds"], verify=context) as client:
        try:
            told = await _findings(client, root, token)
            return told if told is not None else await _readiness(client, root, token)
        except (httpx2.HTTPError, ValueError) as exc:
            raise PeerError(f"{root} does not answer as a bridge: {exc or type(exc).__name__}") from exc


async def _findings(client: httpx2.AsyncClient, root: str, token: str | None) -> JsonObject | None:
    """The findings of the bridge about itself; None if they are not for a client without a token.

    Raises:
        UsageError: the token is unknown, or is not an operator's.
    """
    answer = await client.get(f"{root}/healthz/findings", headers=_bearer(token))
    if answer.status_code == 404 or (token is None and answer.status_code in (401, 403)):
        return None
    if answer.status_code == 401:
        raise UsageError(f"{root} does not accept this token ({answer.status_code})")
    if answer.status_code == 403:
        raise UsageError(f"{root} shows its health to operators only, and this token is not an operator's")
    told: JsonObject = answer.raise_for_status().json()
    return told


def _bearer(token: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def readiness_in(answer: httpx2.Response) -> dict[str, Any] | None:
    """The state in a bridge's answer at `/readyz`; None if no bridge has answered."""
    try:
        state = answer.json()
    except ValueError:
        return None
    return state if isinstance(state, dict) and isinstance(state.get("status"), str) else None


async def _readiness(client: httpx2.AsyncClient, root: str, token: str | None) -> JsonObject:
    """The state at `/readyz`, as findings."""
    answer = await client.get(f"{root}/readyz", headers=_bearer(token))
    state = readiness_in(answer)
    if state is None:
        raise PeerError(
            f"there is no bridge at {root}: {root}/readyz answered HTTP {answer.status_code}, and not as a bridge."
            " Give the address without /agents/NAME or /mcp"
        )
    findings: list[Any] = []

    def add(area: str, name: str, why: str | None, mend: str) -> None:
        grade, words = ("good", "is well") if why is None else ("bad", why)
        findings.append(
            {"area": area, "name": name, "grade": grade, "words": words, "mend": mend if why else ""}
        )

    for name, agent in state.get("agents", {}).items():
        add("store", name, None if agent.get("store") == "ok" else str(agent.get("store")), "mcp-a2a check")
    sources = [one.get("servers", {}) for one in state.get("agents", {}).values()]
    sources += [one.get("agents", {}) for one in state.get("mcp", {}).values()]
    for key, one in {key: one for source in sources for key, one in source.items()}.items():
        add("peers", key, None if one.get("up") else str(one.get("why") or "is down"), "mcp-a2a check")
    is_ready = state.get("status") == "ready"  # a degraded bridge also answers 200
    if not findings:
        words = f"{state.get('status', 'unknown')}; the token of an operator (--bearer) shows more"
        findings.append(
            {
                "area": "peers",
                "name": root,
                "grade": "good" if is_ready else "bad",
                "words": words,
                "mend": "" if is_ready else "mcp-a2a check",
            }
        )
    return {"ok": is_ready, "findings": findings, "failures": []}


def _print(told: JsonObject) -> None:
    from bridge.cli import render

    findings: Any = told["findings"]
    area = ""
    for one in findings:
        if one["area"] != area:
            area = one["area"]
            render.heading(area.capitalize())
        render.result(f"  {_MARKS.get(one['grade'], '?')} {one['name']}: {one['words']}")
        if one["mend"]:
            render.result(f"      {one['mend']}")
    failures: Any = told["failures"]
    if failures:
        render.heading("The last failures")
    for one in failures:
        reason = one["reason"] or ("(operators_see_contents is off)" if one["is_withheld"] else "")
        render.result(f"  {one['at']} {one['agent']} {one['state']} {one['task']}")
        if reason:
            render.result(f"      {reason}")
        render.result(f"      {one['mend']}")
    broken = sum(one["grade"] == "bad" for one in findings)
    soon = sum(one["grade"] == "warn" for one in findings)
    what = "1 thing is broken" if broken == 1 else f"{broken} things are broken"
    verdict = what if broken else "nothing is broken"
    render.result("")
    render.result(f"{verdict}{f', {soon} to look at' if soon else ''}")
