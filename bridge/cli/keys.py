"""`mcp-a2a keys`: makes a key that signs cards, and shows its public half."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from bridge.errors import UsageError

_ALGORITHMS = ("ES256", "EdDSA", "RS256")


@click.group()
def keys() -> None:
    """Make keys that sign the cards of agents, and show what others need to verify them.

    \b
    Make a key:                              mcp-a2a keys new card.pem
    Write the key set that others pin:       mcp-a2a keys show card.pem > card-keys.json
    """


@keys.command(short_help="Make a key that signs cards.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--algorithm",
    type=click.Choice(_ALGORITHMS),
    default=_ALGORITHMS[0],
    show_default=True,
    help="The signature algorithm. Every verifier knows ES256.",
)
def new(**options: Any) -> int:
    """Make a private key in FILE, as PEM that only its owner can read, and print what to add to the configuration file.

    The command never overwrites an existing FILE.

    \b
    mcp-a2a keys new card.pem
    mcp-a2a keys new --algorithm EdDSA card.pem

    Exit codes: 0 done; 2 the file exists, or cannot be written.
    """
    from bridge.a2a.server.card_keys import card_key, new_card_key
    from bridge.cli import render
    from bridge.local.private_files import write_privately

    file: Path = options["file"].absolute()
    if file.exists():
        raise UsageError(f"{file} exists, and is not replaced: name another file")
    pem = new_card_key(options["algorithm"])
    try:
        write_privately(file, pem.encode(), lasting=True)
    except OSError as exc:
        raise UsageError(f"{file} cannot be written: {exc.strerror}") from exc
    render.say(
        f"made the key {card_key(pem).signing.id} ({options['algorithm']}). Add to the configuration file:"
    )
    render.write_document(
        f"[bridge]\ncard_keys = [{{ file = {json.dumps(str(file), ensure_ascii=False)} }}]\n"
    )
    return 0


@keys.command(short_help="Print the public halves of keys as a key set.")
@click.argument(
    "files",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILES...",
)
def show(**options: Any) -> int:
    """Print the public halves of the keys in FILES as a JSON Web Key Set, which others may pin as a file.

    A bridge publishes the same at /.well-known/jwks.json.

    \b
    mcp-a2a keys show card.pem > card-keys.json

    Exit codes: 0 done; 2 a file holds no key that can sign cards.
    """
    from bridge.a2a.server.card_keys import card_key
    from bridge.cli import render
    from bridge.local.private_files import read_secret

    found = []
    for file in options["files"]:
        try:
            found.append(card_key(read_secret(file)[0].decode()).public)
        except UsageError as exc:
            raise UsageError(f"{file}: {exc}") from exc
        except (OSError, UnicodeDecodeError) as exc:
            raise UsageError(f"{file} cannot be read") from exc
    render.write_document(json.dumps({"keys": found}, indent=2) + "\n")
    return 0
