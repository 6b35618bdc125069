"""The commands about logins: `login`, `logins` and `logout`."""
