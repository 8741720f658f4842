package e2e

import (
	"bufio"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/load"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netload"
)

// noReplyAtMuxes counts, during a test, the packets from VIPs on the muxes' links, at the router's end by
// a counter and at the muxes' by tcpdump. At its end there must be none but the few SYN/ACKs by which a mux finds out
// whether clients are real, and some to VIPs: else it was not looked at the right place.
func noReplyAtMuxes(t *testing.T, lab *netlab.Lab) {
	t.Helper()
	for _, mux := range lab.Of(netlab.Mux) {
		replies, err := netload.CaptureReplies(lab, mux.Name)
		must(t, err)
		requests, err := netload.CaptureRequests(lab, mux.Name)
		must(t, err)
		sniffer := startSniffer(t, lab, mux.Name)
		before, err := lab.Verdicts(mux.Name)
		must(t, err)
		t.Cleanup(func() {
			defer replies.Close()
			defer requests.Close()
			seen, err := replies.Count()
			must(t, err)
			asked, err := requests.Count()
			must(t, err)
			after, err := lab.Verdicts(mux.Name)
			must(t, err)
			answered := after["reply_syn"] - before["reply_syn"]
			t.Logf("%s answered %d SYNs", mux.Name, answered)
			if uint64(seen) != answered || 100*seen > asked || asked == 0 {
				t.Errorf("%s saw %d replies and %d packets to VIPs; want %d, which are to be few, and some", mux.Name, seen, asked, answered)
			}
			sniffer.sawNothing(t, lab)
		})
	}
}

// 100 000 requests of each family at concurrency 64, half of them on connections of their own. They come from two
// clients: one would use its ports again, and a five-tuple that comes again says nothing new of shares.
func TestManyRequests(t *testing.T) {
	const requests, perConn = 25_000, 10
	clients := []string{"client1", "client2"}
	lab := newLab(t)
	noReplyAtMuxes(t, lab)
	lines := accessLines(t, lab, clients)
	connections := map[string]int{}
	for _, vip := range vips {
		for _, client := range clients {
			for _, per := range []int{1, perConn} {
				r, err := netload.RunLoad(t.Context(), lab, client, load.Config{
					URL: url(vip, 80, "/"), Requests: requests, Concurrency: 64, PerConn: per, Timeout: 20 * time.Second,
				})
				must(t, err)
				if r.Requests != requests {
					t.Errorf("%s to %s: %d requests were made, want %d", client, vip, r.Requests, requests)
				}
				answered(t, lab, client, vip, r)
				if per == 1 {
					for name, count := range r.Backends {
						connections[name] += count
					}
				}
				t.Logf("%s to %s, %d on a connection: %.0f requests a second, slowest %v",
					client, vip, per, float64(r.Requests)/r.Took.Seconds(), r.Slowest)
			}
		}
	}
	sharesFollowWeights(t, connections)
	if got := accessLines(t, lab, clients) - lines; got < 8*requests {
		t.Errorf("the access logs grew by %d lines of the clients' addresses, want %d", got, 8*requests)
	}
}

// sharesFollowWeights holds each backend's share to within 3 % of its weight's.
func sharesFollowWeights(t *testing.T, connections map[string]int) {
	t.Helper()
	all, weights := 0, 0
	for name, weight := range shop {
		all += connections[name]
		weights += weight
	}
	if all < 30_000 {
		t.Errorf("only %d connections: too few to judge shares by", all)
	}
	for name, weight := range shop {
		due := float64(weight) / float64(weights)
		share := float64(connections[name]) / float64(all)
		t.Logf("%s: weight %d, due %.2f %%, got %.2f %% of %d connections", name, weight, 100*due, 100*share, all)
		if math.Abs(share-due) > 0.03*due {
			t.Errorf("%s got %.2f %% of the connections, more than 3 %% away from the %.2f %% that are its due", name, 100*share, 100*due)
		}
	}
}

// accessLines counts the lines of all nginx's access logs that name the clients' own addresses.
func accessLines(t *testing.T, lab *netlab.Lab, clients []string) int {
	t.Helper()
	own := map[string]bool{}
	for _, name := range clients {
		client, err := lab.Node(name)
		must(t, err)
		own[client.IPv4.String()], own[client.IPv6.String()] = true, true
	}
	count := 0
	for name := range shop {
		file, err := os.Open(filepath.Join(nginxDir(lab, name), "access.log"))
		must(t, err)
		defer file.Close()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			address, _, _ := strings.Cut(lines.Text(), " ")
			if own[address] {
				count++
			}
		}
	}
	return count
}

// Each datagram comes back from the VIP, and those of one flow from one backend.
func TestUDPEcho(t *testing.T) {
	lab := newLab(t)
	noReplyAtMuxes(t, lab)
	client, err := lab.NS("client1")
	must(t, err)
	for _, vip := range vips {
		backends := map[string]int{}
		for range 100 {
			var conn net.Conn
			must(t, client.Do(func() (err error) {
				conn, err = net.Dial("udp", netip.AddrPortFrom(vip, 8080).String())
				return err
			}))
			backend, err := echoPackets(conn, 5)
			must(t, err)
			backends[backend]++
		}
		if want := len(lab.Of(netlab.Workload)); len(backends) != want {
			t.Errorf("%s: 100 flows reached %v, want %d backends", vip, backends, want)
		}
	}
}

// echoPackets sends datagrams and returns the backend that sent all of them back.
func echoPackets(conn net.Conn, count int) (backend string, err error) {
	payloads := make([]string, count)
	for i := range payloads {
		payloads[i] = strings.Repeat(fmt.Sprint(i), 200*(i+1))
	}
	return echoEach(conn, payloads)
}

// echoEach sends datagrams, each when the one before is back.
func echoEach(conn net.Conn, payloads []string) (backend string, err error) {
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(bound)); err != nil {
		return "", err
	}
	buffer := make([]byte, 10_000)
	for i, payload := range payloads {
		if _, err := conn.Write([]byte(payload)); err != nil {
			return "", err
		}
		n, err := conn.Read(buffer)
		if err != nil {
			return "", err
		}
		words := strings.Fields(string(buffer[:n]))
		if len(words) != 3 || words[2] != payload {
			return "", fmt.Errorf("datagram %d came back as %q", i, buffer[:n])
		}
		if i > 0 && words[0] != backend {
			return "", fmt.Errorf("datagram %d was answered by %s, those before by %s", i, words[0], backend)
		}
		backend = words[0]
	}
	return backend, nil
}
