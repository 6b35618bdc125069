"""How the replicas on one store reach each other, and prove their identity."""
