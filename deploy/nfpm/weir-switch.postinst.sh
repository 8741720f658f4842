#!/bin/sh
# Runs when the files are there: of deb as "configure OLD-VERSION", of rpm as 1 (first) or 2 (upgrade).
set -e
case "$1" in
configure) old=$2 ;;
1) old= ;;
2) old=before ;;
*) exit 0 ;;
esac

if [ -z "$old" ]; then
	echo "weir-switch: write /etc/weir/switch.yaml, then: systemctl enable --now weir-switch"
fi
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
# A restart hands over: entries and routes stay.
[ -z "$old" ] || systemctl try-restart weir-switch.service ||
	echo "weir-switch: the new version does not start: see journalctl -u weir-switch" >&2
