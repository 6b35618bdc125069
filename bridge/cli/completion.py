"""`mcp-a2a completion`: prints click's script that completes commands and options in a shell."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

_COMMAND: Final = "mcp-a2a"
COMPLETION_VARIABLE: Final = "_MCP_A2A_COMPLETE"
"""The variable that tells click that a shell asks for completions."""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, /, shell: str) -> int:
    """Print a script that completes commands and options in a shell.

    \b
    bash:  echo 'eval "$(mcp-a2a completion bash)"' >> ~/.bashrc
    zsh:   echo 'eval "$(mcp-a2a completion zsh)"' >> ~/.zshrc
    fish:  mcp-a2a completion fish > ~/.config/fish/completions/mcp-a2a.fish

    The script works in shells that you start afterwards.
    """
    from bridge.cli import render

    completer = get_completion_class(shell)
    assert completer is not None, "click knows these three"
    # Not by `source()`: it checks the version of the bash on the PATH, and another bash may read the script.
    complete = completer(context.find_root().command, {}, _COMMAND, COMPLETION_VARIABLE)
    render.write(complete.source_template % complete.source_vars() + "\n")
    return 0
