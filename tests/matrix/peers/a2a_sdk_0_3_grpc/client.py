"""a2a-sdk 0.3 as a client, over gRPC: the scenarios of `a2a_sdk_0_3`."""

import runpy
from pathlib import Path

runpy.run_path(str(Path(__file__).parents[1] / "a2a_sdk_0_3" / "client.py"), {"BINDING": "GRPC"})
