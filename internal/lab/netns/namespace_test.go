package netns_test

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/lab/netns"
)

// pair is two joined namespaces:
//
//	a ── va 10.9.0.1, fd00:9::1 ════ vb 10.9.0.2, fd00:9::2 ── b
func pair(t *testing.T) (a, b *netns.NS) {
	t.Helper()
	a, b = netns.New(t, "nst-a"), netns.New(t, "nst-b")
	must(t, netns.Veth(a, "va", b, "vb"))
	must(t, a.AddAddress("va", netip.MustParsePrefix("10.9.0.1/24"), netip.MustParsePrefix("fd00:9::1/64")))
	must(t, b.AddAddress("vb", netip.MustParsePrefix("10.9.0.2/24"), netip.MustParsePrefix("fd00:9::2/64")))
	return a, b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestTrafficGoesBetweenNamespaces(t *testing.T) {
	a, b := pair(t)
	must(t, a.AddRoute(netip.MustParsePrefix("192.0.2.0/24"), netip.MustParseAddr("10.9.0.2")))
	must(t, b.AddAddress("lo", netip.MustParsePrefix("192.0.2.1/32")))
	for _, address := range []string{"10.9.0.2:80", "[fd00:9::2]:80", "192.0.2.1:80"} {
		var listener net.Listener
		must(t, b.Do(func() (err error) {
			listener, err = net.Listen("tcp", address)
			return err
		}))
		must(t, a.Do(func() error {
			conn, err := net.Dial("tcp", address)
			if err == nil {
				err = conn.Close()
			}
			return err
		}))
		must(t, listener.Close())
	}
}

func TestThreadsThatEnteredDoNotComeBack(t *testing.T) {
	ns := netns.New(t, "nst-threads")
	outside, err := os.Readlink("/proc/self/ns/net")
	must(t, err)
	for range 50 {
		must(t, ns.Do(func() error { return nil }))
		if now, err := os.Readlink("/proc/thread-self/ns/net"); err != nil || now != outside {
			t.Fatalf("this thread is in %s, was in %s: %v", now, outside, err)
		}
	}
	if now, err := os.Readlink("/proc/self/ns/net"); err != nil || now != outside {
		t.Fatalf("the process is in %s, was in %s: %v", now, outside, err)
	}
}

func TestProcessesEndWithTheNamespace(t *testing.T) {
	ns, err := netns.Create("nst-processes")
	must(t, err)
	cmd := exec.Command("sleep", "1000")
	must(t, ns.Start(cmd))
	pids, err := ns.Processes()
	must(t, err)
	if len(pids) != 1 || pids[0] != cmd.Process.Pid {
		t.Errorf("processes inside: %v, want only %d", pids, cmd.Process.Pid)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	must(t, ns.Delete())
	if err := <-done; err == nil {
		t.Error("the process ended by itself")
	}
	if _, err := os.Stat("/run/netns/nst-processes"); !os.IsNotExist(err) {
		t.Errorf("the namespace is still there: %v", err)
	}
	must(t, netns.Remove("nst-processes")) // a second time is no error
}

func TestProcessesSeeTheSameFiles(t *testing.T) {
	ns := netns.New(t, "nst-files")
	inside, err := ns.Run("readlink", "/proc/self/ns/mnt")
	must(t, err)
	outside, err := os.Readlink("/proc/self/ns/mnt")
	must(t, err)
	if strings.TrimSpace(inside) != outside {
		t.Errorf("the mount namespace is %s, outside %s", inside, outside)
	}
}

func TestSysctlAndOffloadHoldInsideOnly(t *testing.T) {
	a, b := pair(t)
	must(t, a.Sysctl("net.ipv4.ip_forward", "1"))
	must(t, a.SetOffload("va", netns.TxChecksum, false))
	must(t, a.SetOffload("va", netns.GRO, true))
	for _, want := range []struct {
		ns       *netns.NS
		dev      string
		forward  string
		features []string
	}{
		{a, "va", "1\n", []string{"tx-checksumming: off", "generic-receive-offload: on"}},
		{b, "vb", "0\n", []string{"tx-checksumming: on", "generic-receive-offload: off"}},
	} {
		forward, err := want.ns.Run("cat", "/proc/sys/net/ipv4/ip_forward")
		must(t, err)
		if forward != want.forward {
			t.Errorf("ip_forward in %s is %q, want %q", want.ns.Name(), forward, want.forward)
		}
		features, err := want.ns.Run("ethtool", "-k", want.dev)
		must(t, err)
		for _, feature := range want.features {
			if !strings.Contains(features, feature) {
				t.Errorf("%s of %s lacks %q:\n%s", want.dev, want.ns.Name(), feature, features)
			}
		}
	}
}

func TestFailuresNameTheThing(t *testing.T) {
	ns := netns.New(t, "nst-errors")
	for _, c := range []struct {
		err  error
		want string
	}{
		{ns.SetUp("eth7"), "eth7 in namespace nst-errors"},
		{ns.SetOffload("eth7", netns.GRO, true), "eth7 in namespace nst-errors"},
		{ns.Sysctl("net.no.such", "1"), "net.no.such"},
		{ns.Start(exec.Command("/no/such/program")), "/no/such/program in namespace nst-errors"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("error %v, want one that contains %q", c.err, c.want)
		}
	}
	if _, err := netns.Create("nst-errors"); err == nil {
		t.Error("made a second namespace of one name")
	}
	if _, err := netns.Open("nst-none"); err == nil {
		t.Error("opened a namespace that is not there")
	}
}

func TestPassXDPLetsTrafficThrough(t *testing.T) {
	a, b := pair(t)
	must(t, b.PassXDP("vb"))
	links, err := b.Run("ip", "-d", "link", "show", "vb")
	must(t, err)
	if !strings.Contains(links, "xdp") {
		t.Fatalf("no program on vb:\n%s", links)
	}
	var listener net.Listener
	must(t, b.Do(func() (err error) {
		listener, err = net.Listen("tcp", "10.9.0.2:80")
		return err
	}))
	defer listener.Close()
	must(t, a.Do(func() error {
		conn, err := net.Dial("tcp", "10.9.0.2:80")
		if err == nil {
			err = conn.Close()
		}
		return err
	}))
}
