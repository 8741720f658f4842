package churn

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/echo"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/testkit/testlab"
)

const (
	narrow = "client3" // behind a path with an MTU of 1400, of which only ICMP tells
	deaf   = "client4" // sends segments of 1500 bytes, whatever the MSS is

	narrowMTU = 1400
	mebibytes = 10 << 20
)

// largePackets transfers 10 MiB down and up by each family, from workloads of both kinds.
func (l *churnLab) largePackets(t *testing.T, s *service, client string) {
	t.Helper()
	hash := sha256.New()
	_, err := io.CopyN(hash, &echo.Pattern{}, mebibytes)
	testlab.Must(t, err)
	want := hex.EncodeToString(hash.Sum(nil))
	for _, n := range l.Of(netlab.Workload)[:2] { // without Weir, the path does carry it
		l.transfer(t, client, netip.AddrPortFrom(n.IPv4, netlab.EchoPort), want)
		l.transfer(t, client, netip.AddrPortFrom(n.IPv6, netlab.EchoPort), want)
	}
	for _, vip := range s.vips {
		met := map[bool]string{} // native or not
		for tries := 0; len(met) < 2; tries++ {
			if tries == 20 {
				t.Fatalf("%s: only workloads like %v answered", vip, met)
			}
			node, err := l.Node(l.transfer(t, client, netip.AddrPortFrom(vip, 80), want))
			testlab.Must(t, err)
			met[node.Native] = node.Name
		}
		t.Logf("%s: transferred 10 MiB each way with %v", vip, met)
	}
}

// transfer loads 10 MiB down and up, and returns to whom.
func (l *churnLab) transfer(t *testing.T, client string, server netip.AddrPort, want string) (workload string) {
	t.Helper()
	script := fmt.Sprintf("set -o pipefail; curl -gsSf --max-time 20 'http://%s/bytes/%d' | tee >(sha256sum >&2) | "+
		"curl -gsSf --max-time 20 -H Expect: -T - 'http://%s/upload'", server, mebibytes, server)
	out, err := l.Run(client, "bash", "-c", script)
	testlab.Must(t, err)
	if got := strings.Count(out, want); got != 2 {
		t.Fatalf("%s: want the checksum %s of the download and of the upload, got %s", server, want, out)
	}
	var received echo.Received
	at := strings.IndexByte(out, '{')
	if at < 0 {
		t.Fatalf("%s: no answer to the upload: %s", server, out)
	}
	testlab.Must(t, json.NewDecoder(strings.NewReader(out[at:])).Decode(&received))
	return received.Backend
}

// learned holds that a node learned that the path to an address is narrower than its link. Linux may have
// forgotten: it purges what it learned of IPv6 paths by a gateway whose neighbour entry does not say
// "router" at that moment. Then the node is sent to learn again.
func (l *churnLab) learned(t *testing.T, node string, to netip.Addr) {
	t.Helper()
	testlab.Must(t, netlab.Poll(t.Context(), bound, func() error {
		out, err := l.Run(node, "ip", "route", "get", to.String())
		if err != nil {
			return err
		}
		route := strings.Join(strings.Fields(out), " ")
		if strings.Contains(route, " mtu ") {
			t.Logf("%s to %s: %s", node, to, route)
			return nil
		}
		_, err = l.Run(node, "bash", "-c", "head -c 1000000 /dev/zero | curl -gsSf --max-time 5 -H Expect: -T - '"+testlab.URL(to)+"upload'")
		return errors.Join(fmt.Errorf("%s learned no MTU on the way to %s: %s", node, to, route), err)
	}))
}

// A client behind a path with a smaller MTU, and one that ignores the MSS that it is told.
func (l *churnLab) testPaths(t *testing.T) {
	s := l.serve(t)
	t.Run("fragments", func(t *testing.T) { l.fragments(t, s) })
	t.Run("narrow", func(t *testing.T) {
		testlab.Must(t, l.Narrow(narrow, narrowMTU))
		l.largePackets(t, s, narrow)
		for _, vip := range s.vips {
			l.learned(t, narrow, vip)
		}
	})
	t.Run("deaf", func(t *testing.T) {
		testlab.Must(t, l.IgnoreMSS(deaf))
		l.largePackets(t, s, deaf)
		for _, vip := range s.vips {
			l.learned(t, deaf, vip)
		}
	})
}

// fragments sends datagrams of 8 KB, which come back as large.
func (l *churnLab) fragments(t *testing.T, s *service) {
	t.Helper()
	before := l.counts(t)
	defer func() { l.since(t, before, nil) }()
	ns, err := l.NS(modern)
	testlab.Must(t, err)
	payload := strings.Repeat("fragment", 1000)
	for _, vip := range s.vips {
		backends := map[string]int{}
		for range 100 {
			var conn net.Conn
			testlab.Must(t, ns.Do(func() (err error) {
				conn, err = net.Dial("udp", netip.AddrPortFrom(vip, 80).String())
				return err
			}))
			backend, err := echoLarge(conn, payload)
			testlab.Must(t, err)
			backends[backend]++
		}
		if len(backends) < 2 {
			t.Errorf("%s: 100 flows reached only %v", vip, backends)
		}
		t.Logf("%s: 100 datagrams of 8 KB came back from %d backends", vip, len(backends))
	}
}

// echoLarge sends a datagram until it comes back, and returns who sent it: the first one may only tell
// the client the MTU, as it does of IPv6.
func echoLarge(conn net.Conn, payload string) (backend string, err error) {
	defer conn.Close()
	buffer := make([]byte, 10_000)
	for range 10 {
		if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
			return "", err
		}
		var n int
		if _, err = conn.Write([]byte(payload)); err == nil {
			n, err = conn.Read(buffer)
		}
		if err != nil {
			continue
		}
		words := strings.Fields(string(buffer[:n]))
		if len(words) == 3 && words[2] == payload {
			return words[0], nil
		}
		return "", errors.New("came back as something else")
	}
	return "", err
}
