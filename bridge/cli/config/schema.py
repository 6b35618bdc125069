"""`mcp-a2a schema`: the JSON Schema of the configuration file, or of mapping profiles, for editors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from bridge.errors import UsageError


@click.command()
@click.option("--profile", is_flag=True, help="Print the schema of mapping profiles instead.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the schema to this file.",
)
def schema(**options: Any) -> int:
    """Print the JSON Schema of the configuration file.

    An editor that knows TOML and JSON Schema completes and checks a file whose first line names the schema:

    \b
    #:schema ./mcp-a2a.schema.json

    \b
    mcp-a2a schema --output mcp-a2a.schema.json
    mcp-a2a schema --profile --output mappings/profile.schema.json
    """
    from bridge.cli import render
    from bridge.config.file_schema import file_schema, profile_schema

    found = profile_schema() if options["profile"] else file_schema()
    text = json.dumps(found, indent=2, ensure_ascii=False) + "\n"
    output: Path | None = options["output"]
    if output is None:
        render.write_document(text)
        return 0
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as exc:
        raise UsageError(f"cannot write {output}: {exc.strerror or exc}") from exc
    render.say(f"The schema is in {output}")
    return 0
