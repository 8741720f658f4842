#!/bin/sh
# Runs when the files are there: of deb as "configure OLD-VERSION", of rpm as 1 (first) or 2 (upgrade).
set -e
case "$1" in
configure) old=$2 ;;
1) old= ;;
2) old=before ;;
*) exit 0 ;;
esac

# Its user owns the database.
if command -v systemd-sysusers >/dev/null 2>&1; then
	systemd-sysusers weir-manager.conf
elif ! getent passwd weir >/dev/null; then
	useradd --system --home-dir /var/lib/weir --shell /usr/sbin/nologin weir
fi

if [ -z "$old" ]; then
	echo "weir-manager: write /etc/weir/manager.yaml, then: systemctl enable --now weir-manager"
fi
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
# Muxes and hosts go on with what they have.
[ -z "$old" ] || systemctl try-restart weir-manager.service ||
	echo "weir-manager: the new version does not start: see journalctl -u weir-manager" >&2
