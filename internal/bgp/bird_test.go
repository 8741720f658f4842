package bgp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/netns"
)

// birdFile is what docs/start/routers.md tells to write.
func birdFile(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/start/routers.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)<!-- /etc/bird/bird.conf -->\n```text\n(.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("the page has no bird.conf")
	}
	return string(block[1])
}

// bird is a network whose router is a real BIRD.
type bird struct {
	*network
	control string
}

func (b bird) ask(what string) string {
	out, _ := exec.Command("/usr/sbin/birdc", "-r", "-s", b.control, what).CombinedOutput()
	return string(out)
}

// birdNetwork has the addresses of the page: two muxes beside each other, in one network with the router.
func birdNetwork(t *testing.T, file string) bird {
	t.Helper()
	dir := t.TempDir()
	n := bird{&network{t: t, router: netns.New(t, "bird-router"), speakers: map[int]*netns.NS{}}, filepath.Join(dir, "control")}
	run(t, n.router, "ip link add br0 type bridge")
	run(t, n.router, "ip link set br0 up")
	run(t, n.router, "ip address add 10.0.0.1/24 dev br0")
	run(t, n.router, "ip address add 2001:db8:10::1/64 dev br0 nodad")
	for i := 1; i <= 2; i++ {
		port := fmt.Sprintf("r%d", i)
		n.speakers[i] = netns.New(t, fmt.Sprintf("bird-speaker%d", i))
		if err := errors.Join(
			netns.Veth(n.router, port, n.speakers[i], "s"),
			n.speakers[i].AddAddress("s", netip.MustParsePrefix(fmt.Sprintf("10.0.0.1%d/24", i)), netip.MustParsePrefix(fmt.Sprintf("2001:db8:10::1%d/64", i))),
		); err != nil {
			t.Fatal(err)
		}
		run(t, n.router, "ip link set "+port+" master br0")
	}
	path := filepath.Join(dir, "bird.conf")
	if err := os.WriteFile(path, []byte(file), 0o644); err != nil {
		t.Fatal(err)
	}
	log := &netns.Log{}
	cmd := exec.Command("/usr/sbin/bird", "-f", "-c", path, "-s", n.control, "-P", filepath.Join(dir, "pid"))
	cmd.Stdout, cmd.Stderr = log, log
	if err := n.router.Start(cmd); err != nil {
		t.Fatalf("start bird: %v: install the package bird2", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, what := range []string{"show protocols all", "show bfd sessions", "show route all"} {
				t.Logf("bird, %s:\n%s", what, n.ask(what))
			}
			t.Logf("bird:\n%s", log)
		}
		cmd.Process.Kill()
		cmd.Wait()
	})
	return n
}

// pageConfig is that of the mux at 10.0.0.1i.
func (b bird) pageConfig(i int) Config {
	return Config{
		AS: speakerAS, RouterID: netip.MustParseAddr(fmt.Sprintf("10.0.0.1%d", i)),
		NextHop4: netip.MustParseAddr(fmt.Sprintf("10.0.0.1%d", i)), NextHop6: netip.MustParseAddr(fmt.Sprintf("2001:db8:10::1%d", i)),
		HoldTime: 90 * time.Second, GracefulRestart: 30 * time.Second,
		Peers: []Peer{{Address: netip.MustParseAddr("10.0.0.1"), AS: routerAS, PasswordFile: password(b.t, "change-me"), BFD: 100 * time.Millisecond}},
	}
}

func up(p PeerState) bool { return p.Established() && p.BFD == "up" }

var pageVIP6 = netip.MustParsePrefix("2001:db8:113::10/128")

// The file of the page: both families, both muxes, BFD, the password, and nothing but VIPs.
func TestBIRD(t *testing.T) {
	n := birdNetwork(t, birdFile(t))
	stranger := netip.MustParsePrefix("198.51.100.7/32")
	one := n.startSpeaker(1, n.pageConfig(1), vip4, pageVIP6, stranger)
	n.startSpeaker(2, n.pageConfig(2), vip4, pageVIP6)
	n.wantNextHops(vip4, "10.0.0.11 10.0.0.12")
	n.wantNextHops(pageVIP6, "2001:db8:10::11 2001:db8:10::12")
	one.want("up", up)
	if hops := n.nextHops(stranger); hops != "" {
		t.Errorf("%s goes to %s, which is no VIP", stranger, hops)
	}
}

// With bfd graceful no route moves while a daemon restarts; with bfd on it does, and the page says so.
func TestBIRDKeepsRoutesOfADaemonThatRestarts(t *testing.T) {
	for _, c := range []struct {
		option string
		keeps  bool
	}{{"bfd graceful;", true}, {"bfd on;", false}} {
		t.Run(c.option, func(t *testing.T) {
			n := birdNetwork(t, strings.ReplaceAll(birdFile(t), "bfd graceful;", c.option))
			first := n.startSpeaker(1, n.pageConfig(1), vip4, pageVIP6)
			n.wantNextHops(vip4, "10.0.0.11")
			n.wantNextHops(pageVIP6, "2001:db8:10::11")
			first.want("up", up)
			events := n.routeEvents(vip4, pageVIP6)
			first.kill()
			if !c.keeps {
				n.wantNextHops(vip4, "")
			} else {
				down := func() bool { return !regexp.MustCompile(`10\.0\.0\.11 .* Up `).MatchString(n.ask("show bfd sessions")) }
				eventually(t, down, func() string { return "bird does not miss the daemon: " + n.ask("show bfd sessions") })
			}
			second := n.restartSpeaker(1, n.pageConfig(1), vip4, pageVIP6)
			second.want("up again", up)
			other := netip.MustParsePrefix("203.0.113.11/32")
			second.say("announce " + vip4.String() + " " + pageVIP6.String() + " " + other.String())
			n.wantNextHops(other, "10.0.0.11") // what proves that the router is done with the restart
			if lines := events(); c.keeps != (len(lines) == 0) {
				t.Errorf("the routes had events: %q", lines)
			}
		})
	}
}

// A dead machine: its routes go though its session's hold time is 90 s, with bfd graceful after its graceful restart.
func TestBIRDLeavesADeadMux(t *testing.T) {
	for _, option := range []string{"bfd graceful;", "bfd on;"} {
		t.Run(option, func(t *testing.T) {
			n := birdNetwork(t, strings.ReplaceAll(birdFile(t), "bfd graceful;", option))
			config := n.pageConfig(1)
			config.GracefulRestart = 2 * time.Second
			one := n.startSpeaker(1, config, vip4)
			n.startSpeaker(2, n.pageConfig(2), vip4)
			n.wantNextHops(vip4, "10.0.0.11 10.0.0.12")
			one.want("up", up)
			run(t, n.router, "nft add table bridge silence")
			run(t, n.router, "nft add chain bridge silence in { type filter hook input priority 0 ; }")
			run(t, n.router, "nft add rule bridge silence in iifname r1 drop")
			n.wantNextHops(vip4, "10.0.0.12")
		})
	}
}
