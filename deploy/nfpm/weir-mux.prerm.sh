#!/bin/sh
# Runs before the files go: of deb as "remove" or "upgrade", of rpm as 0 (for good) or 1 (upgrade). An upgrade
# changes nothing here: the old program runs until the new one's files are there.
set -e
case "$1" in
remove | deconfigure | 0) ;;
*) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
	systemctl disable --now weir-mux.service || true
fi
# A clean stop ended forwarding; what a crash left is ended here.
weir-mux --config /etc/weir/mux.yaml unload || weir-mux unload ||
	echo "weir-mux: the data plane stays: remove /sys/fs/bpf/weir-mux by hand" >&2
