#!/usr/bin/env bash
# Installs what building, testing and the lab need and this machine lacks. Does nothing when all
# is there. Debian 12 and later install by apt; elsewhere it says which packages are missing.
set -euo pipefail
cd "$(dirname "$0")/.."

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
	apt-ftparchive:apt-utils
	createrepo_c:createrepo-c
	/usr/sbin/bird:bird2
	/usr/sbin/lldpd:lldpd
	man:man-db
	chromium:chromium
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

# Any Go from 1.21 on fetches the toolchain that go.mod names by itself, unless GOTOOLCHAIN forbids it.
check_go() {
	if ! command -v go >/dev/null 2>&1; then
		command -v apt-get >/dev/null 2>&1 || fail "go is not installed: install Go 1.26, or any from 1.21 on, and put it into PATH"
		echo "setup: installing golang-go"
		install_packages golang-go
	fi
	local version
	version=$(GOTOOLCHAIN=local go env GOVERSION) # go1.26.8
	newer "$version" 1.26 && return
	newer "$version" 1.21 || fail "$version is too old: install Go 1.26, or any from 1.21 on (Debian 12: apt-get install -t bookworm-backports golang-go)"
	version=$(go env GOVERSION) || fail "go could not fetch the toolchain that go.mod names: let it reach $(go env GOPROXY), or install Go 1.26"
	newer "$version" 1.26 || fail "$version is too old, and GOTOOLCHAIN is $(go env GOTOOLCHAIN): set it to auto, or install Go 1.26"
}

newer() { # go1.26.8 1.21
	[ "$(printf '%s\n' "$2" "${1#go}" | sort -V | head -n 1)" = "$2" ]
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

# Of Debian 12's package prometheus only promtool is wanted, and no service: it is taken out, not installed. Later ones
# have a package of that name.
fetch_promtool() {
	local bin folder package
	bin=$PWD/bin
	if command -v promtool >/dev/null 2>&1 || [ -x "$bin/promtool" ]; then
		return
	fi
	command -v apt-get >/dev/null 2>&1 || fail "missing promtool: install it from Prometheus' release"
	echo "setup: fetching promtool"
	folder=$(mktemp -d)
	[ -n "$(apt-cache pkgnames prometheus)" ] || apt-get update -q
	package=prometheus
	[ -z "$(apt-cache pkgnames promtool)" ] || package=promtool
	(cd "$folder" && { apt-get download -q "$package" || { apt-get update -q && apt-get download -q "$package"; }; } &&
		dpkg-deb --fsys-tarfile "$package"_*.deb | tar -x ./usr/bin/promtool) ||
		fail "could not fetch promtool from the package $package"
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
