#!/bin/sh
# Make the database of the bridges and their role, on the first start of an empty PostgreSQL.
#
# The role makes its tables itself, so it may make schemas in this one database, and nothing else anywhere.
# docs/replicas.md has the role of a bridge whose tables another role makes.
set -eu
export BRIDGE_PASSWORD_FILE="${BRIDGE_PASSWORD_FILE:-/run/secrets/bridge_password}"
psql --no-psqlrc --set ON_ERROR_STOP=1 --username postgres --dbname postgres <<'SQL'
\set password `cat "$BRIDGE_PASSWORD_FILE"`
CREATE ROLE bridge LOGIN PASSWORD :'password';
CREATE DATABASE mcp_a2a;
REVOKE ALL ON DATABASE mcp_a2a FROM PUBLIC;
GRANT CONNECT, CREATE ON DATABASE mcp_a2a TO bridge;
SQL
