"""What the suites start for each scenario: hands it to the bridge that waits for it, and ends when it is through.

`python client_command.py PORT URL`. A program of its own, and a light one: the suites start all scenarios at the
same time. Imports nothing but the standard library.
"""

import http.client
import json
import os
import sys


def main() -> int:
    """Hand the scenario on; the exit status is what came of it."""
    port, url = sys.argv[1:]
    scenario = {
        "name": os.environ["MCP_CONFORMANCE_SCENARIO"],
        "url": url,
        "context": json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")),
    }
    connection = http.client.HTTPConnection("127.0.0.1", int(port))
    connection.request("POST", "/", json.dumps(scenario), {"Content-Type": "application/json"})
    came = json.loads(connection.getresponse().read())
    print(came["said"])
    return 0 if came["done"] else 1


if __name__ == "__main__":
    sys.exit(main())
