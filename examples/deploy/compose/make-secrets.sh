#!/bin/sh
# Make the secrets of compose.yaml in the folder `secrets`, and name the group that may read them in `.env`.
#
# Containers read the secrets as a group of this user, because the bridge refuses a key that everyone can read.
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
for name in postgres_password owner_password bridge_password bridge_key ops_token; do
    random >"secrets/$name"
done
# The database has no certificate, and only containers of this file are in its network.
url() {
    printf 'postgresql://%s:%s@database/tasks?sslmode=disable' "$1" "$(cat "secrets/$2")"
}
url tasks_owner owner_password >secrets/owner_url
url bridge bridge_password >secrets/database_url
echo "SECRETS_GROUP=$(id -g)" >.env
