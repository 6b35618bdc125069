#!/bin/sh
# Make the database of the bridges and its two roles, on the first start of an empty PostgreSQL.
#
# `tasks_owner` makes the tables (`mcp-a2a store migrate`), and may make schemas in this database only. `bridge` may only read
# and change their rows.
set -eu
SECRETS="${SECRETS:-/run/secrets}"
export SECRETS
psql --no-psqlrc --set ON_ERROR_STOP=1 --username postgres --dbname postgres <<'SQL'
\set owner_password `cat "$SECRETS/owner_password"`
\set bridge_password `cat "$SECRETS/bridge_password"`
CREATE ROLE tasks_owner LOGIN PASSWORD :'owner_password';
CREATE ROLE bridge LOGIN PASSWORD :'bridge_password';
CREATE DATABASE tasks;
REVOKE ALL ON DATABASE tasks FROM PUBLIC;
GRANT CONNECT, CREATE ON DATABASE tasks TO tasks_owner;
GRANT CONNECT ON DATABASE tasks TO bridge;
\connect tasks
ALTER DEFAULT PRIVILEGES FOR ROLE tasks_owner GRANT USAGE ON SCHEMAS TO bridge;
ALTER DEFAULT PRIVILEGES FOR ROLE tasks_owner GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO bridge;
SQL
