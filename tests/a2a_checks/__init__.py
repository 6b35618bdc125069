"""Does an agent keep to A2A 1.0? Checks over the wire, of any agent, whoever made it.

`python -m tests.a2a_checks URL` prints what it does as the specification says, what not, and what could not be
tried. Nothing here knows the bridge: what it says of the bridge, it says of a stranger.

table                       what a check is
wire, bindings, errors      HTTP; the operations in each binding's words; refusals
hooks                       webhooks for an agent to post to
card, talk, occasions       the agent: what it declares, how it is asked, how it is brought to do what is needed
shapes, folding             A2A's objects as tables; what a stream adds up to
on_*                        the checks, each with its sentence in a table at the end of its module
run, report                 all of them against one agent; what came of it
known                       what a2a-sdk's own server is known to fail
runs                        the checks against the agents at hand: the bridge, a2a-sdk's server, that one through us
spoiling, faults, broken    agents that are broken in one way: for the tests of the checks
"""

from tests.a2a_checks.report import Failure, Outcome, Report, Result, Verdict, table_lines
from tests.a2a_checks.run import CHECKS, run_checks
from tests.a2a_checks.table import Check, Level, Need, Section

__all__ = [
    "CHECKS",
    "Check",
    "Failure",
    "Level",
    "Need",
    "Outcome",
    "Report",
    "Result",
    "Section",
    "Verdict",
    "run_checks",
    "table_lines",
]
