"""Who calls, and what each may use."""
