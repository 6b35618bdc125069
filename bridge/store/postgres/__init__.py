"""A store in PostgreSQL, which any number of replicas share. It needs the extra `postgres`."""
