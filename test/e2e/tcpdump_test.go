package e2e

import (
	"bufio"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netload"
	"github.com/weirlb/weir/internal/pkt"
)

// sniffer is a tcpdump on a mux's uplink that shows packets from VIPs. XDP takes packets to VIPs before
// it could see them; what is from a VIP is for no endpoint, so XDP would let it through.
type sniffer struct {
	node  string
	cmd   *exec.Cmd
	lines chan string
}

func startSniffer(t *testing.T, lab *netlab.Lab, node string) *sniffer {
	t.Helper()
	ns, err := lab.NS(node)
	must(t, err)
	filter := fmt.Sprintf("src net %s or src net %s", netlab.VIPs4, netlab.VIPs6)
	s := &sniffer{node: node, lines: make(chan string, 1000)}
	s.cmd = exec.Command("tcpdump", "--interface", netlab.Uplink, "-p", "-n", "-q", "-t", "-l", "--immediate-mode", filter)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	shown, err := s.cmd.StdoutPipe()
	must(t, err)
	said, err := s.cmd.StderrPipe()
	must(t, err)
	must(t, ns.Start(s.cmd))
	go func() {
		defer close(s.lines)
		for lines := bufio.NewScanner(shown); lines.Scan(); {
			if lines.Text() == "" { // at its end
				continue
			}
			select {
			case s.lines <- lines.Text():
			default: // nobody wants to read that many
			}
		}
	}()
	for words := bufio.NewScanner(said); words.Scan(); {
		if strings.HasPrefix(words.Text(), "listening on") {
			return s
		}
	}
	t.Fatalf("tcpdump on %s ended before it listened: %v", node, s.cmd.Wait())
	return nil
}

// sawNothing ends the tcpdump and holds that it saw no packet but two forged ones, one of each
// family, which prove that it would have.
func (s *sniffer) sawNothing(t *testing.T, lab *netlab.Lab) {
	t.Helper()
	const nobody = 9 // a port of the client's that nothing uses
	client, err := lab.Node("client1")
	must(t, err)
	forged := map[string]bool{}
	for vip, to := range map[netip.Addr]netip.Addr{vip4: client.IPv4, vip6: client.IPv6} {
		from := netip.AddrPortFrom(vip, 80).String()
		frame := pkt.TCP(from, netip.AddrPortFrom(to, nobody).String(), pkt.ACK).Frame()
		must(t, netload.Inject(lab, s.node, frame))
		forged[fmt.Sprintf("%s.80 > %s.%d", vip, to, nobody)] = true
	}
	late := time.After(bound)
	for len(forged) > 0 {
		select {
		case line, runs := <-s.lines:
			if !runs {
				t.Fatalf("tcpdump on %s ended: %v", s.node, s.cmd.Wait())
			}
			_, flow, _ := strings.Cut(line, " ") // behind IP or IP6
			flow, _, _ = strings.Cut(flow, ": ")
			if !forged[flow] {
				t.Errorf("tcpdump on %s shows a reply: %s", s.node, line)
			}
			delete(forged, flow)
		case <-late:
			t.Fatalf("tcpdump on %s does not show the forged packets %v: is its filter right?", s.node, forged)
		}
	}
	must(t, s.cmd.Process.Signal(syscall.SIGINT))
	for line := range s.lines {
		t.Errorf("tcpdump on %s shows a reply: %s", s.node, line)
	}
	must(t, s.cmd.Wait())
}
