"""How log lines look: as text for people or JSON for machines, always on stderr, with the call they belong to."""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Final

from bridge import trace
from bridge.safe_text import spelled_as_json, with_visible_characters

_USER: Final = re.compile(r"(?<=://)[^/@\s\"'<>]+@")
_SESSION: Final = re.compile(r"(?<=session ID: )\S+|(?<=ating session: )\S+|(?<=^Session )[0-9a-f]{32}\b")
"""As the MCP SDK names the sessions of a tool server and our own: who knows one can take it over."""
_QUERY: Final = re.compile(r"(://[^\s?#\"'<>]*[?#])[^\s\"'<>]+")


class BareFormat(logging.Formatter):
    """The words alone."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as one line, its traceback below it."""
        # What a peer sent may stand in a message: it must not begin a line of its own, nor steer a terminal.
        line = with_visible_characters(_discreet(record, record.getMessage()), in_one_line=True)
        if not record.exc_info:
            return line
        return f"{line}\n{with_visible_characters(_discreet(record, self.formatException(record.exc_info)))}"


class TextFormat(BareFormat):
    """`12:00:00 WARNING [1a2b3c4d] words`"""

    def format(self, record: logging.LogRecord) -> str:
        """One record as one line, its traceback below it."""
        moment = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        call = trace.call_id.get()
        where = f" [{call}]" if call != "-" else ""
        return f"{moment} {record.levelname}{where} {super().format(record)}"


class JsonFormat(logging.Formatter):
    """One JSON object a line: time, level, logger, call, message, and a traceback when there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as one line."""
        said = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "call": trace.call_id.get(),
            "message": _discreet(record, record.getMessage()),
        }
        if record.exc_info:
            said["traceback"] = _discreet(record, self.formatException(record.exc_info))
        return spelled_as_json(json.dumps(said, ensure_ascii=False))


def _discreet(record: logging.LogRecord, text: str) -> str:
    """Words of a library without the user and query of the URLs in them, in which secrets may stand, and without the
    ids of sessions. Ours have none."""
    if record.name.partition(".")[0] == "bridge":
        return text
    return _QUERY.sub(r"\1***", _USER.sub("", _SESSION.sub("***", text)))


def set_up_for_none() -> None:
    """For commands that keep no log: what is logged all the same, as Python writes it to stderr, is cleaned too."""
    assert logging.lastResort is not None
    logging.lastResort.setFormatter(BareFormat())


def set_up(log_format: str, level: str) -> None:
    """Log from here on, to stderr. Libraries below us speak from WARNING up, unless asked for DEBUG.

    The MCP SDK logs a traceback for each line that it cannot read; what matters of it we say ourselves. At DEBUG it
    logs whole messages, with the arguments and results of calls, which belong in no log.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormat() if log_format == "json" else TextFormat())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel("DEBUG" if level == "debug" else "WARNING")
    for name in ("mcp", "client"):  # the second is the logger of its client session
        logging.getLogger(name).setLevel("INFO" if level == "debug" else "CRITICAL")
    # Each request of the first two names its whole URL, secrets and all; the third tells of every change in a folder,
    # to which it would add one where the log is a file beside the configuration.
    for name in ("httpx2", "httpcore2", "watchfiles"):
        logging.getLogger(name).setLevel("WARNING")
    logging.getLogger("bridge").setLevel(level.upper())
