package manager

import (
	"bytes"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
)

var update = flag.Bool("update", false, "rewrite what the scenarios expect")

// TestScenarios runs each file of testdata: blocks of a command, with JSON below it where it takes
// some, a line ----, and what it prints. Every block is tried until it prints that, or for too long.
func TestScenarios(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("found no scenarios: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) { runScenario(t, path) })
	}
}

type scenario struct {
	url    string
	client *rpc.Client
	muxes  map[string]*fakeMux
	hosts  map[string]*fakeHost
}

func runScenario(t *testing.T, path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	url, _ := start(t, Config{})
	s := &scenario{url: url, client: dial(t, url), muxes: map[string]*fakeMux{}, hosts: map[string]*fakeHost{}}
	var rewritten bytes.Buffer
	for i, block := range strings.Split(strings.TrimSpace(string(text)), "\n\n") {
		if i > 0 {
			rewritten.WriteString("\n")
		}
		if strings.HasPrefix(block, "#") {
			fmt.Fprintln(&rewritten, block)
			continue
		}
		input, want, _ := strings.Cut(block+"\n", "----\n")
		got := s.run(t, input, want)
		if got != want && !*update {
			t.Fatalf("%sprinted\n%s\nwant\n%s", input, got, want)
		}
		fmt.Fprintf(&rewritten, "%s----\n%s", input, got)
	}
	if *update {
		if err := os.WriteFile(path, rewritten.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// run runs one command; those that look are repeated until they see want.
func (s *scenario) run(t *testing.T, input, want string) string {
	t.Helper()
	line, body, _ := strings.Cut(input, "\n")
	word := strings.Fields(line)
	switch word[0] {
	case "start-mux":
		s.muxes[word[1]] = startMux(t, s.url, word[1], word[2])
		eventually(t, word[1]+" has tables", func() bool { return s.muxes[word[1]].has(1) })
		return "ok\n"
	case "start-host":
		s.hosts[word[1]] = startHost(t, s.url, word[1], word[2:]...)
		eventually(t, word[1]+" has tables", func() bool { return s.hosts[word[1]].has(1) })
		return "ok\n"
	case "report":
		return result(s.hosts[word[1]].report(health(t, word[2:])))
	case "reject":
		s.muxes[word[1]].set(strings.Join(word[2:], " "))
		return "ok\n"
	case "apply":
		return s.apply(t, body)
	case "delete":
		_, err := s.client.DeleteVIP(t.Context(), &weirv1.DeleteVIPRequest{Name: word[1]})
		return result(err)
	}
	deadline := time.Now().Add(20 * time.Second) // far more than it takes, for busy machines
	if *update {
		deadline = time.Now().Add(500 * time.Millisecond)
	}
	for {
		got := s.look(t, word)
		if !*update && got == want || time.Now().After(deadline) {
			return got
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// look prints what a node has or the manager says.
func (s *scenario) look(t *testing.T, word []string) string {
	t.Helper()
	switch word[0] {
	case "mux":
		return s.muxes[word[1]].String()
	case "host":
		return s.hosts[word[1]].String()
	case "status":
		r, err := s.client.GetVIP(t.Context(), &weirv1.GetVIPRequest{Name: word[1]})
		if err != nil {
			return result(err)
		}
		return vipText(r.Vip)
	case "explain":
		source, destination := netip.MustParseAddrPort(word[2]), netip.MustParseAddrPort(word[3])
		r, err := s.client.Explain(t.Context(), &weirv1.ExplainRequest{
			Protocol: word[1], SourceAddress: source.Addr().String(), SourcePort: uint32(source.Port()),
			DestinationAddress: destination.Addr().String(), DestinationPort: uint32(destination.Port()),
		})
		if err != nil {
			return result(err)
		}
		return strings.Join(r.Steps, "\n") + "\n"
	}
	t.Fatalf("unknown command %q", word)
	return ""
}

func (s *scenario) apply(t *testing.T, body string) string {
	t.Helper()
	r := &weirv1.ApplyVIPsRequest{}
	if err := protojson.Unmarshal([]byte(body), r); err != nil {
		t.Fatalf("read %s: %v", body, err)
	}
	applied, err := s.client.ApplyVIPs(t.Context(), r)
	if err != nil {
		return result(err)
	}
	text := ""
	for _, vip := range applied.Vips {
		text += fmt.Sprintf("%s %s\n", vip.Name, vip.Change)
	}
	return text
}

func health(t *testing.T, word []string) model.BackendHealth {
	t.Helper()
	protocol, err := model.ParseProtocol(word[0])
	if err != nil {
		t.Fatal(err)
	}
	vip := netip.MustParseAddrPort(word[1])
	return model.BackendHealth{
		Endpoint: model.EndpointKey{VIP: vip.Addr(), Protocol: protocol, Port: vip.Port()},
		Backend:  netip.MustParseAddrPort(word[2]), Health: model.Health(word[3]), Reason: strings.Join(word[4:], " "),
	}
}

func vipText(p *weirv1.VIP) string {
	text := fmt.Sprintf("%d of %d muxes run it\n", p.Status.MuxesProgrammed, p.Status.MuxesTotal)
	for _, reason := range p.Status.Rejections {
		text += "refused by " + reason + "\n"
	}
	for _, e := range p.Endpoints {
		for _, b := range e.Backends {
			text += fmt.Sprintf("%s on %s, weight %d: slot %d, %s, %d of %d buckets", b.Address, b.Host, b.GetWeight(),
				b.Status.Slot, b.Status.Health, b.Status.Buckets, b.Status.BucketsTotal)
			if b.Status.Reason != "" {
				text += ": " + b.Status.Reason
			}
			text += "\n"
		}
	}
	return text
}

func result(err error) string {
	if err != nil {
		return err.Error() + "\n"
	}
	return "ok\n"
}
