"""The examples of deployments: what their tools say of them, and whether they hold together."""
