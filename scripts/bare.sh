#!/usr/bin/env bash
# scripts/bare.sh [TARGET...] makes these targets (default: demo) of the last commit on a bare machine: a Debian 13 that
# has git and make and nothing else, in a folder, on this machine's kernel. It downloads about 1 GB and needs 6 GB below
# $BARE_DIR (default: a new folder below /var/tmp); the folder is removed unless BARE_DIR names it.
set -euo pipefail
cd "$(dirname "$0")/.."

targets=("$@")
[ "${#targets[@]}" -gt 0 ] || targets=(demo)
command -v debootstrap >/dev/null || apt-get install -qy --no-install-recommends debootstrap >/dev/null

if [ -n "${BARE_DIR:-}" ]; then
	dir=$BARE_DIR
	mkdir -p "$dir"
else
	dir=$(mktemp -d /var/tmp/weir-bare-XXXXXX)
	trap 'rm -rf --one-file-system "$dir"' EXIT
fi
if [ ! -e "$dir/etc/debian_version" ]; then
	debootstrap --variant=minbase --include=git,make,ca-certificates trixie "$dir" ${MIRROR:-}
fi
[ ! -e /etc/ssl/certs/ca-certificates.crt ] || cp -L /etc/ssl/certs/ca-certificates.crt "$dir/etc/ssl/certs/" # a proxy's CA too
cp -L /etc/resolv.conf /etc/hosts "$dir/etc/"
rm -rf "$dir/weir"
git clone --quiet --no-hardlinks . "$dir/weir"

# shellcheck disable=SC2016 # the shell inside expands these
unshare --mount --pid --fork --kill-child bash -euc '
	mount --make-rprivate /
	mount --bind "$1" "$1"  # ip netns exec wants a root that is a mount point
	mount -t proc proc "$1/proc"
	mount -t sysfs sysfs "$1/sys"
	mount -t bpf bpf "$1/sys/fs/bpf"
	mount --rbind /dev "$1/dev"
	mount -t tmpfs tmpfs "$1/run"
	mkdir "$1/run/before"
	cd "$1"
	pivot_root . run/before # not chroot: there nobody may make a user namespace, and systemd does
	umount -l /run/before
	exec env -i HOME=/root TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin make -C /weir "${@:2}"
' bare "$dir" "${targets[@]}"
