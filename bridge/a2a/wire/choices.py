"""The names of dialects and bindings in settings. The command line reads them, so this module imports nothing heavy."""

from typing import Literal

DialectChoice = Literal["auto", "1.0", "0.3", "0.1", "hermes"]
"""The dialect for an agent: `auto` follows its card, any other name is a version."""

BindingChoice = Literal["JSONRPC", "HTTP+JSON", "GRPC"]
"""A binding of A2A over which an agent is called."""
