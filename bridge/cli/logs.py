"""Formats log lines, as text for people or as JSON for machines, with the call's id. The log goes to stderr."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from datetime import UTC, datetime
from typing import Final

from bridge import trace
from bridge.text.safe_text import spelled_as_json, with_visible_characters

_USER: Final = re.compile(r"(?<=://)[^/@\s\"'<>]+@")
_SESSION: Final = re.compile(r"(?<=session ID: )\S+|(?<=ating session: )\S+|(?<=^Session )[0-9a-f]{32}\b")
"""Session ids in messages of the MCP SDK. Whoever knows an id can take over the session."""
_QUERY: Final = re.compile(r"(://[^\s?#\"'<>]*[?#])[^\s\"'<>]+")


class BareFormat(logging.Formatter):
    """The message alone."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as one line, its traceback below it."""
        # A message may contain words of a peer: they must not begin a line, nor control the terminal.
        line = with_visible_characters(_discreet(record, record.getMessage()), in_one_line=True)
        if not record.exc_info:
            return line
        return f"{line}\n{with_visible_characters(_discreet(record, self.formatException(record.exc_info)))}"


class TextFormat(BareFormat):
    """`12:00:00 WARNING [1a2b3c4d] words`."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as one line, its traceback below it."""
        moment = time.strftime("%H:%M:%S", time.localtime(record.created))
        call = _call_of(record)
        where = f" [{call}]" if call != "-" else ""
        return f"{moment} {record.levelname}{where} {super().format(record)}"


class JsonFormat(logging.Formatter):
    """One JSON object a line: time, level, logger, call, message, the fields of a call, and a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as one line."""
        fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "call": _call_of(record),
            "message": _discreet(record, record.getMessage()),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            fields["traceback"] = _discreet(record, self.formatException(record.exc_info))
        return spelled_as_json(json.dumps(fields, ensure_ascii=False))


def _call_of(record: logging.LogRecord) -> str:
    """The call that a record names, or else the current call."""
    call = getattr(record, "call", None)
    return call if isinstance(call, str) else trace.call_id.get()


def _discreet(record: logging.LogRecord, text: str) -> str:
    """A library's message without session ids, and without the users and queries of URLs, which may hold secrets. The
    bridge's own messages hold none."""
    if record.name.partition(".")[0] == "bridge":
        return text
    return _QUERY.sub(r"\1***", _USER.sub("", _SESSION.sub("***", text)))


def set_up_without_log() -> None:
    """Set up a command without a log: clean the messages that Python writes to stderr anyway."""
    assert logging.lastResort is not None
    logging.lastResort.setFormatter(BareFormat())


def set_up(log_format: str, level: str) -> None:
    """Set up the log on stderr. Libraries log from WARNING up, or from DEBUG when `level` is `debug`.

    The MCP SDK logs a traceback for each line that it cannot read, and the bridge reports such lines itself. At DEBUG
    the SDK logs whole messages, with the arguments and results of calls, which belong in no log.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormat() if log_format == "json" else TextFormat())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel("DEBUG" if level == "debug" else "WARNING")
    for name in ("mcp", "client"):  # the second is the logger of its client session
        logging.getLogger(name).setLevel("INFO" if level == "debug" else "CRITICAL")
    # At INFO the first two log whole URLs, with secrets. The third logs each change in the folder of the configuration;
    # a log file in that folder would change with each such line.
    for name in ("httpx2", "httpcore2", "watchfiles"):
        logging.getLogger(name).setLevel("WARNING")
    # When a connection breaks, psycopg raises an error, and also warns of later errors that it ignored.
    logging.getLogger("psycopg").setLevel("INFO" if level == "debug" else "ERROR")
    # OpenTelemetry warns at each retry of a collector. `telemetry.spans` reports the spans that a full queue drops.
    logging.getLogger("opentelemetry").setLevel("INFO" if level == "debug" else "ERROR")
    logging.getLogger("bridge").setLevel(level.upper())
