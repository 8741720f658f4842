package doctor

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// Kernels. BPF_F_IPV6 came with 6.16 and went into some stable releases from 6.6 on.
var (
	goodKernel  = [2]int{6, 16}
	leastKernel = [2]int{6, 6}
)

func kernel(context.Context, Subject) []Finding {
	release, err := kernelRelease()
	if err != nil {
		return unknown(err, "look at uname -r: Weir needs Linux 6.16")
	}
	var have [2]int
	if _, err := fmt.Sscanf(release, "%d.%d", &have[0], &have[1]); err != nil {
		return unknown(fmt.Errorf("read the release %q: %w", release, err), "look at uname -r: Weir needs Linux 6.16")
	}
	switch {
	case slices.Compare(have[:], leastKernel[:]) < 0:
		return bad(Fail, "boot Linux 6.16 or later", "Linux %s is older than 6.6", release)
	case slices.Compare(have[:], goodKernel[:]) < 0:
		return bad(Warn, "boot Linux 6.16, or start the daemon: it says so if this kernel lacks it",
			"Linux %s has BPF_F_IPV6 only if its distribution brought it back", release)
	}
	return ok("Linux %s", release)
}

func kernelRelease() (string, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "", fmt.Errorf("ask for the kernel's release: %w", err)
	}
	return unix.ByteSliceToString(name.Release[:]), nil
}

// neededOptions must be built in or, where they may, be modules.
var neededOptions = []string{
	"CONFIG_BPF_SYSCALL", "CONFIG_BPF_JIT", "CONFIG_NET_INGRESS", "CONFIG_NET_EGRESS", "CONFIG_IP_MULTIPLE_TABLES", "CONFIG_INET_DIAG",
}

func kernelOptions(context.Context, Subject) []Finding {
	config, err := openKernelConfig()
	if err != nil {
		return unknown(err, "check that the kernel has: "+strings.Join(neededOptions, " "))
	}
	defer config.Close()
	on := map[string]bool{}
	lines := bufio.NewScanner(config)
	for lines.Scan() {
		if name, value, found := strings.Cut(lines.Text(), "="); found && (value == "y" || value == "m") {
			on[name] = true
		}
	}
	if err := lines.Err(); err != nil {
		return unknown(err, "check that the kernel has: "+strings.Join(neededOptions, " "))
	}
	var missing []string
	for _, name := range neededOptions {
		if !on[name] {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return bad(Fail, "boot a kernel that has them", "the kernel lacks %s", strings.Join(missing, ", "))
	}
	return ok("the kernel has all %d options", len(neededOptions))
}

func openKernelConfig() (io.ReadCloser, error) {
	if file, err := os.Open("/proc/config.gz"); err == nil {
		unpacked, err := gzip.NewReader(file)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("read /proc/config.gz: %w", err), file.Close())
		}
		return struct {
			io.Reader
			io.Closer
		}{unpacked, file}, nil
	}
	release, err := kernelRelease()
	if err != nil {
		return nil, err
	}
	return os.Open("/boot/config-" + release)
}

func typesOfKernel(context.Context, Subject) []Finding {
	const path = "/sys/kernel/btf/vmlinux"
	info, err := os.Stat(path)
	if err != nil || info.Size() == 0 {
		return bad(Fail, "boot a kernel with CONFIG_DEBUG_INFO_BTF, and mount sysfs", "%s is not there: programs can't be fitted to this kernel", path)
	}
	return ok("%s has %d KiB", path, info.Size()>>10)
}

func jit(context.Context, Subject) []Finding {
	value, err := sysctl("net/core/bpf_jit_enable")
	if errors.Is(err, os.ErrNotExist) {
		return ok("the kernel compiles all programs")
	}
	if err != nil {
		return unknown(err, "look at sysctl net.core.bpf_jit_enable")
	}
	if value == "0" {
		return bad(Fail, "sysctl -w net.core.bpf_jit_enable=1", "net.core.bpf_jit_enable is 0: programs are interpreted, many times slower")
	}
	return ok("net.core.bpf_jit_enable is %s", value)
}

// sysctl reads a knob, named as below /proc/sys.
func sysctl(name string) (string, error) {
	data, err := os.ReadFile("/proc/sys/" + name)
	return strings.TrimSpace(string(data)), err
}

const bpffs = "/sys/fs/bpf"

func pins(context.Context, Subject) []Finding {
	var fs unix.Statfs_t
	if err := unix.Statfs(bpffs, &fs); err != nil {
		return bad(Fail, "mount -t bpf bpf "+bpffs, "look at %s: %v", bpffs, err)
	}
	if fs.Type != unix.BPF_FS_MAGIC {
		return bad(Fail, "mount -t bpf bpf "+bpffs, "%s is no bpffs: the data plane can't outlive its daemon", bpffs)
	}
	return ok("%s is a bpffs", bpffs)
}

// wantedFiles is what the units ask for, by role.
var wantedFiles = map[Role]uint64{Mux: 4096, Host: 4096, Manager: 16384}

func openFiles(_ context.Context, s Subject) []Finding {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return unknown(err, "look at ulimit -Hn")
	}
	if limit.Max < wantedFiles[s.Role] {
		return bad(Warn, "raise it, as LimitNOFILE of the unit does",
			"a process may open %d files, fewer than %d", limit.Max, wantedFiles[s.Role])
	}
	return ok("a process may open %d files", limit.Max)
}

// timeSync asks the kernel whether somebody keeps its clock.
func timeSync(context.Context, Subject) []Finding {
	var state unix.Timex
	status, err := unix.Adjtimex(&state)
	if err != nil {
		return unknown(err, "look at timedatectl")
	}
	if status == unix.TIME_ERROR || state.Status&unix.STA_UNSYNC != 0 {
		return bad(Warn, "run chrony or systemd-timesyncd: certificates and logs need the right time", "the kernel's clock is kept by nobody")
	}
	return ok("the clock is kept, to within %s", time.Duration(state.Maxerror)*time.Microsecond)
}

// synCookies looks for what the host's own stack needs to make sockets of SYN cookies.
func synCookies(context.Context, Subject) []Finding {
	const needed = "bpf_sk_assign_tcp_reqsk"
	types, err := btf.LoadKernelSpec()
	if err != nil {
		return unknown(err, "look for "+needed+" in /proc/kallsyms")
	}
	var function *btf.Func
	if err := types.TypeByName(needed, &function); err != nil {
		return bad(Warn, "boot Linux 6.9 or later, or bear it: the agent leads the host's own services through handshakes instead",
			"the kernel has no %s: it makes no sockets of SYN cookies", needed)
	}
	value, err := sysctl("net/ipv4/tcp_syncookies")
	if err != nil {
		return unknown(err, "look at sysctl net.ipv4.tcp_syncookies")
	}
	if value == "0" {
		return bad(Warn, "sysctl -w net.ipv4.tcp_syncookies=1",
			"net.ipv4.tcp_syncookies is 0: the kernel makes no sockets of SYN cookies")
	}
	return ok("the kernel makes sockets of SYN cookies")
}
