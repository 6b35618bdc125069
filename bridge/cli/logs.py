"""How log lines look: as text for people or JSON for machines, always on stderr, with the call they belong to."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from bridge import trace
from bridge.unseen import spelled_as_json, spelled_out


class TextFormat(logging.Formatter):
    """`12:00:00 WARNING [1a2b3c4d] words`"""

    def format(self, record: logging.LogRecord) -> str:
        """One record as one line, its traceback below it."""
        moment = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        call = trace.call_id.get()
        where = f" [{call}]" if call != "-" else ""
        # What a peer sent may stand in a message: it must not begin a line of its own, nor steer a terminal.
        message = spelled_out(record.getMessage(), in_one_line=True)
        line = f"{moment} {record.levelname}{where} {message}"
        return f"{line}\n{spelled_out(self.formatException(record.exc_info))}" if record.exc_info else line


class JsonFormat(logging.Formatter):
    """One JSON object a line: time, level, logger, call, message, and a traceback when there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as one line."""
        said = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "call": trace.call_id.get(),
            "message": record.getMessage(),
        }
        if record.exc_info:
            said["traceback"] = self.formatException(record.exc_info)
        return spelled_as_json(json.dumps(said, ensure_ascii=False))


def set_up(log_format: str, level: str) -> None:
    """Log from here on, to stderr. Libraries below us speak from WARNING up, unless asked for DEBUG.

    The MCP SDK logs a traceback for each line that it cannot read; what matters of it we say ourselves.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormat() if log_format == "json" else TextFormat())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel("DEBUG" if level == "debug" else "WARNING")
    for name in ("mcp", "client"):  # the second is the logger of its client session
        logging.getLogger(name).setLevel("DEBUG" if level == "debug" else "CRITICAL")
    # Each request of the first two names its whole URL, secrets and all; the third tells of every change in a folder,
    # to which it would add one where the log is a file beside the configuration.
    for name in ("httpx2", "httpcore2", "watchfiles"):
        logging.getLogger(name).setLevel("WARNING")
    logging.getLogger("bridge").setLevel(level.upper())
