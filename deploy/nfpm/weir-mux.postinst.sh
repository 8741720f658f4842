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
	echo "weir-mux: write /etc/weir/mux.yaml, then: systemctl enable --now weir-mux"
fi
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
# A restart hands over: forwarding goes on and routers keep the routes.
[ -z "$old" ] || systemctl try-restart weir-mux.service ||
	echo "weir-mux: the new version does not start: see journalctl -u weir-mux" >&2
