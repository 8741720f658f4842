package hardware

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/lab/clos"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/testkit/fabriclab"
	"github.com/weirlb/weir/internal/testkit/switchlab"
	"github.com/weirlb/weir/internal/testkit/testlab"
)

// declare declares the links of a fabric's switches, some with another lower end than they have, by both ends as "core-1 agg-1-1".
func declare(t *testing.T, w *fabriclab.World, otherwise map[string]string) {
	t.Helper()
	f, err := clos.Parse(w.Fabric, string(netlab.Router))
	testlab.Must(t, err)
	var b strings.Builder
	b.WriteString("apiVersion: weir/v1\nkind: Fabric\nmetadata: {name: east}\nspec:\n  switches:\n")
	for _, name := range f.Switches {
		fmt.Fprintf(&b, "  - {name: %s}\n", name)
	}
	b.WriteString("  links:\n")
	for _, l := range f.Links {
		if l.Upper == string(netlab.Router) {
			continue
		}
		lower := l.Lower
		if other := otherwise[l.Upper+" "+lower]; other != "" {
			lower = other
		}
		fmt.Fprintf(&b, "  - {a: %s, b: %s, mbitPerS: 1000}\n", lower, l.Upper)
	}
	b.WriteString("  racks:\n")
	for i, tor := range f.ToRs {
		fmt.Fprintf(&b, "  - {name: rack-%d, switch: %s}\n", i+1, tor)
	}
	file := filepath.Join(w.Dir(), "fabric.yaml")
	testlab.Must(t, os.WriteFile(file, []byte(b.String()), 0o600))
	if out, err := w.Weir("apply", "-f", file); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// hearLLDP runs lldpd on all switches, by the names that they have.
func hearLLDP(t *testing.T, w *fabriclab.World) {
	t.Helper()
	for _, n := range w.Of(netlab.Switch) {
		ns, err := w.NS(n.Name)
		testlab.Must(t, err)
		socket := fmt.Sprintf("/run/weir-lab-switch-%d.lldp", n.Number)
		_ = os.Remove(socket) // what a test that crashed left
		switchlab.StartLLDP(t, ns, socket, n.Name)
		t.Cleanup(func() { _ = os.Remove(socket) })
	}
}

// toldOfLinks waits for an event of the fabric that names both ends of a link.
func toldOfLinks(t *testing.T, w *fabriclab.World, reason string, ends ...string) {
	t.Helper()
	testlab.Must(t, netlab.Poll(t.Context(), testlab.Bound, func() error {
		told := testlab.Events(t, w.Lab, reason)
		for _, line := range told {
			has := true
			for _, end := range ends {
				has = has && strings.Contains(line, end)
			}
			if has {
				return nil
			}
		}
		return fmt.Errorf("no event %s names %v: %q", reason, ends, told)
	}))
}

// forgetHostRoutes has a switch's router give the kernel its own host routes, as one does whose operator left table-map out.
func forgetHostRoutes(t *testing.T, w *fabriclab.World, name string) {
	t.Helper()
	router := w.SwitchRouter(name)
	before, err := router.Vtysh("show running-config")
	testlab.Must(t, err)
	_, as, _ := strings.Cut(before, "router bgp ")
	_, err = router.Vtysh("configure terminal\nrouter bgp " + strings.Fields(as)[0] + "\naddress-family ipv4 unicast\nno table-map HOST-ROUTES-ipv4\n")
	testlab.Must(t, err)
	after, err := router.Vtysh("show running-config")
	testlab.Must(t, err)
	if !strings.Contains(before, "table-map HOST-ROUTES-ipv4") || strings.Contains(after, "table-map HOST-ROUTES-ipv4") {
		t.Fatalf("the router of %s had, or has, another configuration: %s", name, after)
	}
}
