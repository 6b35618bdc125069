#!/bin/sh
# Make the secrets of compose.yaml in the folder `secrets`, and name the group that may read them in `.env`.
#
# Containers read them as a group of this user, because the bridge refuses a key that everyone can read.
set -eu
cd "$(dirname "$0")"
if [ -e secrets ]; then
    echo "secrets is there already: its passwords are those of the database, so it is not made anew" >&2
    exit 1
fi
umask 027
mkdir secrets
random() {
    head -c 32 /dev/urandom | od -A n -t x1 | tr -d ' \n'
}
random >secrets/postgres_password
random >secrets/bridge_password
random >secrets/bridge_key
random >secrets/ops_token
# The database has no certificate, and only containers of this file are in its network.
printf 'postgresql://bridge:%s@database/mcp_a2a?sslmode=disable' "$(cat secrets/bridge_password)" >secrets/database_url
echo "SECRETS_GROUP=$(id -g)" >.env
