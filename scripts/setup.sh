#!/usr/bin/env bash
# Installs what building, testing and the lab need and this machine lacks. Does nothing when all
# is there. Debian 12 and later install by apt; elsewhere it says which packages are missing.
set -euo pipefail

# command:package, as Debian names them
needs=(
	clang-19:clang-19
	gcc:gcc
	llvm-strip-19:llvm-19
	clang-format-19:clang-format-19
	/usr/lib/frr/bgpd:frr
	vtysh:frr
	/usr/sbin/nginx:nginx-light
	iperf3:iperf3
	tcpdump:tcpdump
	/usr/sbin/sysctl:procps
	ip:iproute2
	/usr/sbin/ethtool:ethtool
	/usr/sbin/nft:nftables
	/usr/sbin/bpftool:bpftool
	curl:curl
	ping:iputils-ping
	tshark:tshark
	rpm:rpm
	redis-server:redis-server
	/usr/sbin/lldpd:lldpd
)

fail() {
	echo "setup: $*" >&2
	exit 1
}

missing_packages() {
	local need
	{
		for need in "${needs[@]}"; do
			command -v "${need%%:*}" >/dev/null 2>&1 || echo "${need##*:}"
		done
		[[ -e /usr/include/stdlib.h ]] || echo libc6-dev # the race detector is linked by gcc
		python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || echo python3-venv # schemathesis is installed by PyPI
	} | sort -u
}

check_go() {
	command -v go >/dev/null 2>&1 ||
		fail "go is not installed: install Go 1.26 or later and put it into PATH"
	local version minor
	version=$(go env GOVERSION) # go1.26.8
	minor=${version#go1.}
	minor=${minor%%.*}
	[ "${minor:-0}" -ge 26 ] 2>/dev/null || fail "$version is too old: install Go 1.26 or later"
}

# A package's service must not start: the lab runs its own, and a web server on this machine is
# not ours to start.
install_packages() {
	local policy=/usr/sbin/policy-rc.d ours=
	if [ ! -e "$policy" ]; then
		printf '#!/bin/sh\nexit 101\n' >"$policy"
		chmod 755 "$policy"
		ours=1
	fi
	local status=0
	{ apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "$@"; } ||
		status=$?
	[ -z "$ours" ] || rm -f "$policy"
	[ "$status" = 0 ] || fail "apt-get could not install: $*"
}

# Of the package prometheus only promtool is wanted, and no service: it is taken out, not installed.
fetch_promtool() {
	local bin folder
	bin=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/bin
	if command -v promtool >/dev/null 2>&1 || [ -x "$bin/promtool" ]; then
		return
	fi
	command -v apt-get >/dev/null 2>&1 || fail "missing promtool: install it from Prometheus' release"
	echo "setup: fetching promtool"
	folder=$(mktemp -d)
	(cd "$folder" && { apt-get download -q prometheus || { apt-get update -q && apt-get download -q prometheus; }; } &&
		dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool) ||
		fail "could not fetch promtool from the package prometheus"
	mkdir -p "$bin"
	mv "$folder/usr/bin/promtool" "$bin/promtool"
	rm -rf "$folder"
}

[ "$(id -u)" = 0 ] || fail "must run as root: network namespaces and eBPF need it (try sudo make ...)"
check_go
mapfile -t missing < <(missing_packages)
if [ "${#missing[@]}" -eq 0 ]; then
	fetch_promtool
	exit 0
fi
command -v apt-get >/dev/null 2>&1 ||
	fail "missing packages (Debian's names; install your distribution's): ${missing[*]}"
echo "setup: installing ${missing[*]}"
install_packages "${missing[@]}"
mapfile -t missing < <(missing_packages)
[ "${#missing[@]}" -eq 0 ] || fail "still missing after the installation: ${missing[*]}"
fetch_promtool
