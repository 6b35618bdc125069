"""What operators see of the hops of a bridge: log lines, spans and metrics. Each is a listener (`bridge.trace`)."""
