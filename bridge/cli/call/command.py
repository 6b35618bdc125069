"""`mcp-a2a call`: calls a skill of an agent (`agent_call.py`) or a tool of an MCP server (`tool_call.py`)."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from bridge.cli.call.agent_call import AgentCalling
from bridge.cli.call.arguments import CallRequest
from bridge.cli.card import AgentConnection, call_options
from bridge.errors import PeerError, UsageError

if TYPE_CHECKING:
    from bridge.a2a.client.agent_card import FoundCard
    from bridge.cli.call.results import CallView

_URL: Final = re.compile("https?:", re.IGNORECASE)


class _WithServer(click.Command):
    """A command line that may end with `--` and the command of a tool server.

    After an agent's URL, `--` only ends the options.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Separate the words of the call from the words of the server."""
        place = self._place_of_dashes(args)
        before, behind = args[:place], args[place + 1 :]
        rest = super().parse_args(ctx, before)
        url, words = ctx.params["url"], ctx.params["words"]
        ctx.params["server"] = ()
        if url is not None and (_URL.match(url) or not behind):
            ctx.params["words"] = (*words, *behind)
        elif behind:
            ctx.params |= {
                "url": None,
                "words": words if url is None else (url, *words),
                "server": tuple(behind),
            }
        elif not ctx.resilient_parsing:
            (url_parameter,) = (parameter for parameter in self.params if parameter.name == "url")
            raise click.MissingParameter(ctx=ctx, param=url_parameter)
        return rest

    def _place_of_dashes(self, args: list[str]) -> int:
        """The index of the first `--` that is not the value of an option; the end if there is none."""
        taking = {
            name
            for option in self.params
            if isinstance(option, click.Option) and not option.is_flag
            for name in option.opts
        }
        places = (
            place
            for place, word in enumerate(args)
            if word == "--" and (place == 0 or args[place - 1] not in taking)
        )
        return next(places, len(args))


@click.command(cls=_WithServer)
@click.argument("url", metavar="URL", required=False)
@click.argument("words", nargs=-1, metavar="[SKILL|TOOL|TEXT] [KEY=VALUE]... [-- COMMAND ARGS...]")
@click.option(
    "--json",
    "arguments",
    metavar="OBJECT",
    help="All arguments as one JSON object; @FILE reads it from a file, @- from stdin.",
)
@click.option("--text", help="Send this text instead of arguments. You may leave out SKILL.")
@click.option(
    "--task",
    "task_id",
    metavar="ID",
    help="Continue this task: answer its question with KEY=VALUE, --json or --text, or watch it.",
)
@click.option("--decline", is_flag=True, help="With --task: decline its question.")
@click.option(
    "--explain",
    is_flag=True,
    help="Show what the agent makes of the text, and by which rule; it runs nothing.",
)
@click.option("--trace", is_flag=True, help="Show all sent and received messages on stderr, as JSON.")
@click.option(
    "--save",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Save the files of the results in this folder.",
)
@click.option("--no-wait", is_flag=True, help="Print the id of the task, and do not wait for its results.")
@click.option(
    "--env", "variables", multiple=True, metavar="NAME[=VALUE]", help="Variable for the command. Repeatable."
)
@click.option(
    "--era",
    type=click.Choice(["auto", "legacy", "modern"]),
    default="auto",
    show_default=True,
    help="The server's generation of MCP: legacy is 2025-11-25 and older, modern 2026-07-28.",
)
@call_options
def call(**options: Any) -> int:
    """Call a skill of an agent or a tool of an MCP server, and show the result.

    URL is the address of an agent or of an MCP server. An MCP server may also be a command, after --. Without SKILL or
    TOOL, the command lists what the agent or the server has. Words with a space in quotation marks that name no skill
    are a text for the agent, as with --text.

    Results go to stdout, and everything else goes to stderr. Data that repeats a text or a file is printed only with
    --json-output. The skill's schema defines the type of a VALUE. Without a schema, a VALUE that is JSON is read as
    JSON. To give the items of an array, repeat its KEY=VALUE.

    \b
    mcp-a2a call http://127.0.0.1:8080 echo message=hello
    mcp-a2a call http://127.0.0.1:8080 search --json '{"query": "bridges", "limit": 3}'
    mcp-a2a call http://127.0.0.1:8080 "What can you do?"
    mcp-a2a call echo message=hello -- npx -y @modelcontextprotocol/server-everything

    When the agent asks a question, the terminal shows it. Ctrl+D declines it, or cancels the task if the agent does not
    define how a client declines. Ctrl+C cancels the task. Without a terminal, a call of a tool that asks is cancelled,
    and a task of an agent keeps waiting. --task answers it later:

    \b
    mcp-a2a call http://127.0.0.1:8080 --task 0198c0de-... name=Ada
    mcp-a2a call http://127.0.0.1:8080 --task 0198c0de-... --decline

    Exit codes: 0 the task is completed; 1 it failed, or was rejected or canceled; 2 the command is at fault; 3 the task
    or tool asks for an answer, and there is no terminal or --no-wait is given; 130 interrupted.
    """
    import anyio

    from bridge.a2a.client.card_places import NoCardError
    from bridge.cli.call.results import CallView

    if options["server"]:
        return _call_of_command(options)
    connection = AgentConnection.from_options(options)
    if options["variables"]:
        raise UsageError("--env is for a command; a URL takes --header")
    request = CallRequest.from_options(options)
    view = CallView(json_lines=options["json_output"], id_only=options["no_wait"], save=options["save"])
    try:
        read_card = anyio.run(connection.card)
    except NoCardError as exc:
        return _call_of_url(request, view, options, exc)
    return _call_of_agent(request.for_agent(read_card.card), view, options, connection, read_card)


def _call_of_agent(
    request: CallRequest,
    view: CallView,
    options: dict[str, Any],
    connection: AgentConnection,
    read_card: FoundCard,
) -> int:
    """Call the agent whose card was read. Returns the exit code."""
    from bridge.cli.call.questions import DeclinedError

    if options["era"] != "auto":
        raise UsageError("--era is for an MCP server: there is an agent at the URL")
    if request.asks_for_list and not options["task_id"]:
        view.skills(read_card.card)
        return 0
    if options["trace"]:
        connection = replace(connection, on_hop=partial(view.hop, "a2a"))
    talk = AgentCalling(connection, read_card, view, options["timeout_seconds"])
    try:
        message = talk.resumed(options["task_id"], request) if options["task_id"] else talk.opened(request)
        return talk.begin(message) if options["no_wait"] and message else talk.run(message)
    except DeclinedError:
        return talk.decline()
    except KeyboardInterrupt:
        click.echo(err=True)  # begin a new line after what the person was typing
        talk.cancel()
        raise
    finally:
        view.settle()


def _call_of_command(options: dict[str, Any]) -> int:
    """Start a server and call its tool."""
    from bridge.cli.call.results import CallView
    from bridge.cli.call.tool_call import ToolCalling, require_none_for_agents, server_from

    request = CallRequest.from_options(options)
    require_none_for_agents(options)
    server = server_from(options)
    view = CallView(json_lines=options["json_output"], id_only=False, save=options["save"])
    return ToolCalling(server, request, view, options).run()


def _call_of_url(request: CallRequest, view: CallView, options: dict[str, Any], no_card: PeerError) -> int:
    """Call a tool of the MCP server at a URL that gives no agent card."""
    from bridge.cli.call.tool_call import NoServerError, ToolCalling, options_for_agents, server_from

    if any(options_for_agents(options)):
        raise no_card
    try:
        return ToolCalling(server_from(options), request, view, options).run()
    except NoServerError as exc:
        raise PeerError(f"{no_card}, and no MCP server: {exc}") from exc
