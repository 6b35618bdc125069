"""People's logins at the authorization servers of peers: begin, keep, renew and revoke them."""
