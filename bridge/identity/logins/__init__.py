"""Logins of people at the authorization servers of peers: made, kept, renewed and revoked."""
