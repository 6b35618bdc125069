"""`mcp-a2a check`: checks a configuration file, and shows what would be served."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from bridge.assembly.plan import Plan
    from bridge.process.preview import Findings

_WAIT_SECONDS: Final = 30.0
"""The same as in `bridge.process.preview`, which is too slow to import for `--help`."""

_AT_FAULT: Final = 1


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path), metavar="[FILE]")
@click.option(
    "--offline", is_flag=True, help="Connect to nothing, and check only the file and the files that it names."
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option(
    "--wait-seconds",
    type=click.FloatRange(min=0, min_open=True, max=3600),
    default=_WAIT_SECONDS,
    show_default=True,
    help="How long servers and agents may take to answer.",
)
def check(**options: Any) -> int:
    """Check a configuration file, and show what would be served.

    FILE defaults to bridge.toml in the current folder. The command shows every mistake in the file with its line and
    what to do. Then it connects to each server and agent of the file, and to the store. It shows each tool beside its
    skill, with the names of both and who may use them.

    \b
    mcp-a2a check
    mcp-a2a check --offline team.toml
    mcp-a2a check --json | jq .faults

    The command serves nothing and keeps nothing, so it does not disturb a bridge that runs on the same file.

    Exit codes: 0 all is well; 1 a server or agent cannot be called, the store cannot be used, a tool cannot be served,
    an agent of an imported file is left out, or a rule has no effect; 2 the file has mistakes.
    """
    from bridge.cli import logs
    from bridge.cli.config import check_report
    from bridge.cli.serve import config_file, loaded_from, plan_of

    path = config_file(options["file"])
    loaded = loaded_from(path, {})
    logs.set_up("text", "error")
    plan = plan_of(loaded)
    plan.require_safe()
    findings = _findings(plan, options)
    places = [loaded.place_of(fault.path) for fault in findings.faults]
    if options["as_json"]:
        check_report.print_json(path, findings, places)
    else:
        check_report.print_text(path, findings, places)
    return _AT_FAULT if findings.faults else 0


def _findings(plan: Plan, options: dict[str, Any]) -> Findings:
    import anyio

    from bridge.cli.config import check_report
    from bridge.process.preview import findings_of, offline_findings, previewed

    if options["offline"]:
        return offline_findings(plan)

    async def preview() -> Findings:
        async with previewed(plan, check_report.CheckProgress(), options["wait_seconds"]) as bridge:
            return await findings_of(plan, bridge)

    return anyio.run(preview)
