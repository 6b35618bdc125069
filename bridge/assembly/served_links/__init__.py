"""The resources that results of an agent link to, served over HTTP."""
