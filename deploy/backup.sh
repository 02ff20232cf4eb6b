#!/bin/sh
# deploy/backup.sh FOLDER: the database and the mirrors, while everything runs. Needs DATABASE_URL (empty: SQLite) and
# DATA_DIR as the product has them. Index files are left out: they can be made from the mirrors.
set -eu
folder=${1:?name a folder for the backup}
data=${DATA_DIR:-var}
mkdir -p "$folder"
# The database first: mirrors only grow, so what its rows point at is in mirrors that are copied later.
if [ -n "${DATABASE_URL:-}" ]; then
  pg_dump --format=custom --file="$folder/database.dump" "$DATABASE_URL"
else
  python3 - "$data/db.sqlite3" "$folder/database.sqlite3" <<'PYTHON'
import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as source, sqlite3.connect(sys.argv[2]) as target:
    source.backup(target)
PYTHON
fi
mkdir -p "$data/mirrors"
# 1: a fetch changed files while they were read. What the rows point at was there before; the next fetch brings the rest.
tar --create --file="$folder/mirrors.tar" --directory="$data" mirrors || [ $? = 1 ]
# Which SSH hosts are trusted.
[ ! -f "$data/known_hosts" ] || cp "$data/known_hosts" "$folder/known_hosts"
# It encrypts the logins of private repositories, unless SECRET_KEY is in the environment.
[ ! -f "$data/secret_key" ] || install -m 600 "$data/secret_key" "$folder/secret_key"
echo "Backed up to $folder."
