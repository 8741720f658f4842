#!/usr/bin/env bash
# scripts/first-hour.sh [RELEASE] plays docs/start/three-servers.md with the packages of a release (default: out/release)
# and nothing else of this project, on four machines of Debian 13 without Go, under systemd. It downloads about 300 MB and
# needs 1 GB below /var/tmp.
set -euo pipefail
cd "$(dirname "$0")/.."

release=${1:-out/release}
[ -e "$release/SHA256SUMS" ] || { echo "first-hour: $release has no release: make release writes one" >&2; exit 1; }
command -v debootstrap >/dev/null || apt-get install -qy --no-install-recommends debootstrap >/dev/null
(cd "$release" && sha256sum --quiet --check SHA256SUMS)

dir=$(mktemp -d /var/tmp/weir-first-hour-XXXXXX)
trap 'rm -rf --one-file-system "$dir"' EXIT
mkdir "$dir/packages"
cp "$release"/apt/pool/*_"$(dpkg --print-architecture)".deb "$dir/packages/"
debootstrap --variant=minbase --include=ca-certificates trixie "$dir/root" ${MIRROR:+"$MIRROR"}
cp -L /etc/ssl/certs/ca-certificates.crt "$dir/root/etc/ssl/certs/" # a proxy's CA too
cp -L /etc/resolv.conf /etc/hosts "$dir/root/etc/"
DEBIAN_FRONTEND=noninteractive chroot "$dir/root" apt-get install -qy --no-install-recommends \
	systemd systemd-sysv iproute2 procps curl python3 frr >/dev/null
for tool in go make gcc git; do
	! chroot "$dir/root" sh -c "command -v $tool" || { echo "first-hour: the machines have $tool" >&2; exit 1; }
done
WEIR_ROOT=$dir/root WEIR_PACKAGES=$dir/packages go test -count=1 -timeout 20m -v -run 'TestThreeServers$' ./test/packages
