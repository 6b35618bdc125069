// @a2a-js/sdk 1.x as an agent, over gRPC: the agent of `a2a_js_1`.

process.env.MATRIX_BINDING = "GRPC";
await import("../a2a_js_1/agent.mjs");
