"""a2a-sdk 0.3 as an agent, over gRPC."""

import runpy
from pathlib import Path

runpy.run_path(str(Path(__file__).parents[1] / "a2a_sdk_0_3" / "agent.py"), {"BINDING": "GRPC"})
