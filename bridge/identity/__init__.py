"""Who calls the bridge, as whom the bridge calls, and the logins of people."""
