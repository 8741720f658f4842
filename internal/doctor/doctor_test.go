package doctor_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	vnl "github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/doctor"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/rpc"
)

// The topology: the machine that is looked at, and one beside it.
//
//	doctor-here 10.98.0.2 ── 10.98.0.1 doctor-there
func world(t *testing.T) *netns.NS {
	t.Helper()
	here, there := netns.New(t, "doctor-here"), netns.New(t, "doctor-there")
	if err := netns.Veth(here, "eth0", there, "eth0"); err != nil {
		t.Fatal(err)
	}
	if err := here.AddAddress("eth0", netip.MustParsePrefix("10.98.0.2/24")); err != nil {
		t.Fatal(err)
	}
	return here
}

// examine makes all checks inside the namespace, after breaking something; what is mounted then is gone with the thread.
func examine(t *testing.T, ns *netns.NS, s doctor.Subject, spoil func() error) []doctor.Finding {
	t.Helper()
	if s.Interface == "" {
		s.Interface = "eth0"
	}
	if s.Managers == "" {
		s.Managers = "127.0.0.1:1"
	}
	s.Connect = func() (*rpc.Client, error) { return rpc.NewClient(s.Managers) }
	var found []doctor.Finding
	err := ns.Do(func() error {
		if spoil != nil {
			if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
				return err
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return err
			}
			if err := spoil(); err != nil {
				return err
			}
		}
		found = doctor.Examine(t.Context(), s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func levelOf(found []doctor.Finding, check string) (doctor.Level, string) {
	var of []doctor.Finding
	var text []string
	for _, f := range found {
		if f.Check == check {
			of = append(of, f)
			text = append(text, string(f.Level)+" "+f.Reason+" / "+f.Next)
		}
	}
	if len(of) == 0 {
		return "", ""
	}
	return doctor.Worst(of), strings.Join(text, "\n")
}

// cover puts a file or folder of the test over one of the machine, for the thread that calls.
func cover(over string, with string) error { return unix.Mount(with, over, "", unix.MS_BIND, "") }

func run(ns *netns.NS, command ...string) func() error {
	return func() error {
		_, err := ns.Run(command[0], command[1:]...)
		return err
	}
}

// Each check is well on a sound machine, and not on one that is spoilt in the way it looks for.
func TestEachCheckFails(t *testing.T) {
	folder := t.TempDir()
	zero := filepath.Join(folder, "zero")
	if err := os.WriteFile(zero, []byte("0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(folder, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	in := func(c ...string) func(*netns.NS) func() error {
		return func(ns *netns.NS) func() error { return run(ns, c...) }
	}
	here := func(f func() error) func(*netns.NS) func() error { return func(*netns.NS) func() error { return f } }
	const unit = "add table inet t; add chain inet t c { type filter hook input priority 0; policy "
	for _, c := range []struct {
		check, says string
		role        doctor.Role
		level       doctor.Level
		spoil       func(*netns.NS) func() error
	}{
		{"btf", "vmlinux", doctor.Mux, doctor.Fail, here(func() error { return cover("/sys/kernel/btf/vmlinux", empty) })},
		{"bpffs", "mount -t bpf", doctor.Mux, doctor.Fail, here(func() error { return cover("/sys/fs/bpf", folder) })},
		{"kernel-options", "CONFIG_BPF_SYSCALL", doctor.Host, doctor.Fail, here(func() error { return cover("/proc/config.gz", gzipped(t, folder)) })},
		{"interface", "down", doctor.Host, doctor.Fail, in("ip", "link", "set", "eth0", "down")},
		{"interface", "routable", doctor.Mux, doctor.Fail, in("ip", "addr", "flush", "dev", "eth0")},
		{"xdp-owner", "another XDP program", doctor.Mux, doctor.Fail, func(ns *netns.NS) func() error { return func() error { return ns.PassXDP("eth0") } }},
		{"xdp-owner", "another XDP program", doctor.Host, doctor.Warn, func(ns *netns.NS) func() error { return func() error { return ns.PassXDP("eth0") } }},
		{"offloads", "rx-gro-list", doctor.Host, doctor.Fail, in("ethtool", "-K", "eth0", "rx-gro-list", "on")},
		{"offloads", "rx-vlan-stag-hw-parse on: frames leave without", doctor.Mux, doctor.Fail, func(ns *netns.NS) func() error { return func() error { return ns.PassXDP("eth0") } }},
		{"offloads", "rx-gro on: what the kernel merges", doctor.Mux, doctor.Fail, behindGeneric("on")},
		{"offloads", "other end's tso", doctor.Mux, doctor.Warn, behindGeneric("off")},
		{"rp-filter", "strict on eth0", doctor.Mux, doctor.Warn, in("sysctl", "-w", "net.ipv4.conf.eth0.rp_filter=1")},
		{"tcp-timestamps", "no cookie", doctor.Host, doctor.Warn, in("sysctl", "-w", "net.ipv4.tcp_timestamps=0")},
		{"syn-cookies", "tcp_syncookies is 0", doctor.Host, doctor.Warn, in("sysctl", "-w", "net.ipv4.tcp_syncookies=0")},
		{"firewall", "by default in t c", doctor.Manager, doctor.Warn, in("nft", unit+"drop; }")},
		{"firewall", "invalid", doctor.Host, doctor.Warn, in("nft", unit+"accept; }; add rule inet t c ct state invalid drop")},
		{"local-prefixes", "route 100.100.0.0/16 leads to eth0", doctor.Host, doctor.Warn, in("ip", "route", "add", "100.100.0.0/16", "dev", "eth0")},
		{"local-prefixes", "address fd57:4549:5200:1::7 is on eth0", doctor.Host, doctor.Warn, in("ip", "addr", "add", "fd57:4549:5200:1::7/64", "dev", "eth0")},
	} {
		t.Run(c.check+" of a "+string(c.role), func(t *testing.T) {
			ns := world(t)
			if level, text := levelOf(examine(t, ns, doctor.Subject{Role: c.role}, nil), c.check); level != doctor.OK {
				t.Fatalf("a sound machine: %s %s", level, text)
			}
			level, text := levelOf(examine(t, ns, doctor.Subject{Role: c.role}, c.spoil(ns)), c.check)
			if level != c.level || !strings.Contains(text, c.says) {
				t.Errorf("level %s, not %s, or %q is missing: %s", level, c.level, c.says, text)
			}
		})
	}
}

// behindGeneric attaches a program that passes everything in generic mode, behind GRO that is on or off.
func behindGeneric(gro string) func(*netns.NS) func() error {
	return func(ns *netns.NS) func() error {
		return func() error {
			if _, err := ns.Run("ethtool", "-K", "eth0", "gro", gro); err != nil {
				return err
			}
			index, err := ns.Index("eth0")
			if err != nil {
				return err
			}
			program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
				Type: ebpf.XDP, License: "Dual BSD/GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
			})
			if err != nil {
				return err
			}
			defer program.Close()
			return ns.Do(func() error {
				return vnl.LinkSetXdpFdWithFlags(&vnl.Dummy{LinkAttrs: vnl.LinkAttrs{Index: index}}, program.FD(), nl.XDP_FLAGS_SKB_MODE)
			})
		}
	}
}

// gzipped is a kernel's configuration without anything.
func gzipped(t *testing.T, folder string) string {
	t.Helper()
	path := filepath.Join(folder, "config")
	if err := os.WriteFile(path, []byte("# nothing\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gzip", "-f", path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path + ".gz"
}

// A manager's word is its answer and the time there. Its clock is set wrong by what stands before it.
func TestManagers(t *testing.T) {
	for _, c := range []struct {
		says   string
		level  doctor.Level
		answer http.HandlerFunc
	}{
		{"the clock agrees", doctor.OK, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }},
		{"503", doctor.Fail, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }},
		{"10s from that of", doctor.Warn, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", time.Now().Add(-10*time.Second).UTC().Format(http.TimeFormat))
		}},
		{"certificates and tokens are refused", doctor.Fail, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
		}},
	} {
		server := httptest.NewServer(c.answer)
		found := doctor.Examine(t.Context(), doctor.Subject{Role: doctor.Manager, Managers: server.URL})
		server.Close()
		if level, text := levelOf(found, "manager"); level != c.level || !strings.Contains(text, c.says) {
			t.Errorf("level %s, not %s, or %q is missing: %s", level, c.level, c.says, text)
		}
	}
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	gone := doctor.Examine(t.Context(), doctor.Subject{Role: doctor.Manager, Managers: secure.URL + ",127.0.0.1:1"})
	if level, text := levelOf(gone, "manager"); level != doctor.Fail || !strings.Contains(text, "no answer of 127.0.0.1:1") || !strings.Contains(text, "404") {
		t.Errorf("%s %s", level, text)
	}
}

// What the checks need is told for every role, and nothing twice.
func TestRolesHaveTheirChecks(t *testing.T) {
	for role, want := range map[doctor.Role]string{doctor.Mux: "xdp", doctor.Host: "offloads", doctor.Manager: "manager"} {
		names := doctor.Names(role)
		if !slices.Contains(names, want) {
			t.Errorf("%s lacks %s: %q", role, want, names)
		}
	}
}
