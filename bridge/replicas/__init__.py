"""How the replicas of one store reach each other, and prove who they are."""
