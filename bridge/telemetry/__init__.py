"""Shows operators the hops of a bridge as log lines, spans and metrics. Each of the three listens to hops
(`bridge.trace`)."""
