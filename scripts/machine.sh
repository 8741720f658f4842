#!/usr/bin/env bash
# Says in the first second whether tests and the lab can run on this machine, and what to do if not: before anything is
# installed or built. What takes programs to find is weir doctor's.
set -euo pipefail

failed=
fail() {
	echo "machine: $1: $2" >&2
	failed=1
}

[ "$(uname -s)" = Linux ] || { fail "this is $(uname -s)" "take a Linux machine, a virtual one will do"; exit 1; }
[ "$(id -u)" = 0 ] || fail "not root" "network namespaces and eBPF need it: sudo make ..."

case $(uname -m) in
x86_64 | aarch64) ;;
*) fail "the processor is $(uname -m)" "take x86-64 or arm64" ;;
esac

release=$(uname -r)
if [ "$(printf '%s\n' 6.6 "$release" | sort -V | head -n 1)" != 6.6 ]; then
	fail "Linux $release is too old" "boot 6.16 or later, or a stable kernel from 6.6 on that has BPF_F_IPV6 (docs/start/requirements.md)"
fi

[ -r /sys/kernel/btf/vmlinux ] ||
	fail "/sys/kernel/btf/vmlinux is missing" "mount sysfs on /sys, or boot a kernel with CONFIG_DEBUG_INFO_BTF: programs are fitted to the kernel by it"
grep -qw bpf /proc/filesystems || fail "the kernel knows no bpffs" "boot one with CONFIG_BPF_SYSCALL"

# The configuration is where distributions put it; without one the first step of the lab says what is missing.
config() {
	if [ -r /proc/config.gz ]; then
		zcat /proc/config.gz
	else
		cat "/boot/config-$release" 2>/dev/null || true
	fi
}
options=$(config)
for option in NET_NS VETH BPF_SYSCALL BPF_JIT XDP_SOCKETS NET_CLS_BPF TCP_MD5SIG; do
	[ -z "$options" ] || grep -qE "^CONFIG_$option=[ym]" <<<"$options" || fail "the kernel has no CONFIG_$option" "boot your distribution's own kernel"
done

unshare --net true 2>/dev/null || [ "$(id -u)" != 0 ] ||
	fail "no network namespace can be made" "in a container: start it privileged, or take a virtual machine"

[ -z "$failed" ]
