#!/bin/sh
# Runs when the files are gone: of deb as "remove" or "purge", of rpm as 0 (for good) or 1 (upgrade).
set -e
[ ! -d /run/systemd/system ] || systemctl daemon-reload
[ "$1" = purge ] || exit 0
# The database may be the only copy of an installation.
[ ! -d /var/lib/weir ] || echo "weir-manager: the database stays in /var/lib/weir: remove it by hand"
