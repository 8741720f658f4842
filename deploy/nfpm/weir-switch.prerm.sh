#!/bin/sh
# Runs before the files go: of deb as "remove" or "upgrade", of rpm as 0 (for good) or 1 (upgrade). An upgrade
# changes nothing here: the old program runs until the new one's files are there.
set -e
case "$1" in
remove | deconfigure | 0) ;;
*) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
	systemctl disable --now weir-switch.service || true
fi
# A clean stop withdrew the routes; the entries are removed here.
[ ! -d /var/lib/weir-switch ] || weir-switch --config /etc/weir/switch.yaml unload ||
	echo "weir-switch: entries stay in the switch: they attract nothing, see docs/operations/switches.md" >&2
