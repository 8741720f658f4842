#!/bin/sh
# Runs when the files are gone: of deb as "remove" or "purge", of rpm as 0 (for good) or 1 (upgrade).
set -e
[ ! -d /run/systemd/system ] || systemctl daemon-reload
[ "$1" = purge ] || exit 0
# Its certificate, which another installation would not get along with.
rm -rf /var/lib/weir-switch
