"""Our MCP server: what a face gives, served to hosts of every revision."""
