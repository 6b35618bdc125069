"""a2a-sdk 1.x as a client, over gRPC: the scenarios of `a2a_sdk_1`."""

import runpy
from pathlib import Path

runpy.run_path(str(Path(__file__).parents[1] / "a2a_sdk_1" / "client.py"), {"BINDING": "GRPC"})
