#!/bin/sh
# Runs before the files go: of deb as "remove" or "upgrade", of rpm as 0 (for good) or 1 (upgrade). An upgrade
# changes nothing here: the old program runs until the new one's files are there.
set -e
case "$1" in
remove | deconfigure | 0) ;;
*) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
	systemctl disable --now weir-agent.service || true
fi
# Nobody would be left to look after the data plane: connections of VIPs to this host end.
weir-agent --config /etc/weir/agent.yaml unload || weir-agent unload ||
	echo "weir-agent: the data plane stays: remove /sys/fs/bpf/weir-agent and /sys/fs/bpf/weir-agent-networks by hand" >&2
