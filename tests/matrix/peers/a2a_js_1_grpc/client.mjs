// @a2a-js/sdk 1.x as a client, over gRPC: the scenarios of `a2a_js_1`.

process.env.MATRIX_BINDING = "GRPC";
await import("../a2a_js_1/client.mjs");
