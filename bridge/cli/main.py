"""The command `mcp-a2a`: its groups, its exit codes, and how errors become one message.

A command's module is imported on use, and it imports other modules inside its function. The import of the
MCP SDK takes about a second: hosts wait for it when they start `expose`, and `--help` must not need it.
"""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from typing import Final, NoReturn

import click

from bridge.cli import logs
from bridge.cli.completion import COMPLETION_VARIABLE
from bridge.cli.encoding import replace_unencodable_characters
from bridge.errors import (
    FAULT_POLICIES,
    BridgeError,
    ConfigError,
    OwnError,
    PeerError,
    fault_policy_of,
    leaf_of,
)
from bridge.process.resources import collect_garbage_seldom
from bridge.version import __version__

EXIT_INTERRUPTED: Final = 130


_COMMANDS: Final = (
    "wrap",
    "expose",
    "proxy",
    "serve",
    "init",
    "check",
    "doctor",
    "people",
    "pin",
    "show",
    "install",
    "card",
    "call",
    "tasks",
    "login",
    "logins",
    "logout",
    "servers",
    "store",
    "audit",
    "keys",
    "schema",
    "completion",
)
"""The commands in the order of the help. Each is in the module of its name, except for those in `_MODULES`."""
_MODULES: Final = {
    "call": "bridge.cli.call.command",
    "install": "bridge.cli.install.command",
    "people": "bridge.cli.operate.people",
    "doctor": "bridge.cli.operate.doctor",
    "init": "bridge.cli.config.init",
    "check": "bridge.cli.config.check",
    "pin": "bridge.cli.config.pin",
    "show": "bridge.cli.config.show",
    "schema": "bridge.cli.config.schema",
    "tasks": "bridge.cli.task.tasks",
    "login": "bridge.cli.login.login",
    "logins": "bridge.cli.login.logins",
    "logout": "bridge.cli.login.logout",
}

_SUMMARY_CHARACTERS: Final = 200
"""Longer than the first sentence of any command, so that click does not cut it."""


class _Commands(click.Group):
    """Imports commands on use, and shows a whole sentence for each in the help."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names of the commands."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of this name, or None."""
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(
            import_module(_MODULES.get(cmd_name, f"bridge.cli.{cmd_name}")), cmd_name
        )
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their summaries."""
        rows = [
            (name, command.get_short_help_str(_SUMMARY_CHARACTERS))
            for name in self.list_commands(ctx)
            if (command := self.get_command(ctx, name)) is not None
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "MCP_A2A"}
)
@click.version_option(__version__, package_name="mcp-a2a", prog_name="mcp-a2a")
def cli() -> None:
    """A bridge between MCP and A2A.

    \b
    Wrap an MCP server as an A2A agent:   mcp-a2a wrap -- npx -y @modelcontextprotocol/server-everything
    Offer an A2A agent to an MCP host:    mcp-a2a expose https://agent.example.com
    Serve many of both from one file:     mcp-a2a init; mcp-a2a check; mcp-a2a serve
    Show the card of an agent:            mcp-a2a card http://127.0.0.1:8080
    Call one of its skills:               mcp-a2a call http://127.0.0.1:8080 echo message=hello
    Show, answer and cancel its tasks:    mcp-a2a tasks http://127.0.0.1:8080
    Log in at a tool server:              mcp-a2a login https://mcp.example.com/mcp
    Call a tool of an MCP server:         mcp-a2a call greet name=Ada -- python server.py
    Move tasks to PostgreSQL:             mcp-a2a store move old.toml new.toml
    Verify an audit:                      mcp-a2a audit verify audit.jsonl*
    See what is wrong with a bridge:      mcp-a2a doctor
    Give a colleague a token:             mcp-a2a people add ann
    Make a key that signs cards:          mcp-a2a keys new card.pem

    You can set every option as an environment variable too: --port of wrap is MCP_A2A_WRAP_PORT. The command line wins
    over the environment, the environment over the file, and the file over its mapping profile.

    Exit codes: 0 done; 1 the other side is at fault; 2 the command or this machine is at fault; 3 an agent or tool
    asks for an answer, and there is no terminal (call, tasks); 130 interrupted.
    """


def main() -> NoReturn:
    """Run the command and exit with its code. A failure is one message, never a traceback."""
    collect_garbage_seldom()
    replace_unencodable_characters()
    logs.set_up_without_log()
    try:
        sys.exit(_run())
    except click.exceptions.NoSuchOption as exc:
        exc.show()
        if exc.ctx is not None and exc.ctx.info_name == "wrap":
            click.echo(
                "Put the command after --, with its own options: mcp-a2a wrap -- npx -y PACKAGE", err=True
            )
        sys.exit(exc.exit_code)
    except click.ClickException as exc:
        exc.show()
        sys.exit(exc.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(EXIT_INTERRUPTED)
    except ConfigError as exc:
        _complain(str(exc))  # the message has its own prefix and place
        sys.exit(fault_policy_of(exc).exit_code)
    except BridgeError as exc:
        _complain(f"mcp-a2a: {exc}{exc.detail}")
        sys.exit(fault_policy_of(exc).exit_code)
    except BrokenPipeError:
        sys.exit(FAULT_POLICIES[PeerError].exit_code)
    except Exception:
        logging.getLogger(__name__).exception("this is a bug in mcp-a2a; please report it with these lines")
        sys.exit(FAULT_POLICIES[OwnError].exit_code)


def _complain(text: str) -> None:
    from bridge.cli import render  # imports rich, which `--help` does without

    render.complain(text)


def _run() -> int:
    try:
        code = cli.main(standalone_mode=False, complete_var=COMPLETION_VARIABLE)
    except BaseExceptionGroup as group:
        raise leaf_of(group) from group
    return code if isinstance(code, int) else 0
