package netdev

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestNeighbours(t *testing.T) {
	of := func(interfaces ...string) string {
		return `{"lldp":[{"interface":[` + strings.Join(interfaces, ",") + `]}]}`
	}
	first := func(name, age, rid, system, port string) string {
		return `{"name":"` + name + `","via":"LLDP","rid":"` + rid + `","age":"` + age + `","chassis":[{"name":[{"value":"` + system +
			`"}]}],"port":[{"id":[{"value":"` + port + `"}]}]}`
	}
	one := func(name, via, system, port string) string {
		return `{"name":"` + name + `","via":"` + via + `","age":"0 day","chassis":[{"id":[{"type":"mac","value":"02:00"}],"name":[{"value":"` + system +
			`"}]}],"port":[{"id":[{"type":"local","value":"` + port + `"}],"ttl":[{"value":"120"}]}]}`
	}
	for text, want := range map[string]map[string]neighbour{
		`{"lldp":[{}]}`: {},
		`{"lldp":[{"interface":[{"name":"a"}]}]}`:                                    {},
		of(one("eth0", "LLDP", "core-1", "e4"), one("eth1", "LLDP", "core-2", "e4")): {"eth0": {"core-1", "e4"}, "eth1": {"core-2", "e4"}},
		of(one("eth0", "CDPv2", "core-1", "e4")):                                     {},
		of(one("eth0", "LLDP", "core-1", "e4"), one("eth0", "LLDP", "core-1", "e4")): {"eth0": {"core-1", "e4"}},
		// lldpd keeps what is no more until it has aged.
		of(first("eth0", "0 day, 00:01:00", "1", "localhost", "02:00"), first("eth0", "0 day, 00:00:59", "2", "core-1", "e4")):    {"eth0": {"core-1", "e4"}},
		of(first("eth0", "1 day, 00:00:00", "9", "core-1", "e4"), first("eth0", "10 days, 00:00:00", "10", "localhost", "02:00")): {"eth0": {"core-1", "e4"}},
		of(first("eth0", "0 day, 00:00:01", "2", "core-1", "e4"), first("eth0", "0 day, 00:00:01", "1", "localhost", "02:00")):    {"eth0": {"core-1", "e4"}},
		of(first("eth0", "soon", "1", "localhost", "02:00"), first("eth0", "0 day, 23:00:00", "1", "core-1", "e4")):               {"eth0": {"core-1", "e4"}},
		// It does not say who came last.
		of(first("eth0", "0 day, 00:00:01", "1", "a", "e4"), first("eth0", "0 day, 00:00:01", "1", "b", "e4")):            {},
		of(one("eth0", "LLDP", "core-1", "e4"), one("eth0", "LLDP", "core-2", "e4"), one("eth0", "LLDP", "core-1", "e4")): {},
		of(`{"name":"eth0","via":"LLDP","chassis":[{"name":[{"value":"core-1"}]}],"port":[]}`):                            {"eth0": {"core-1", ""}},
	} {
		got, err := parseNeighbours([]byte(text))
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: got %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "no JSON", `{"lldp":{}}`, `{"lldp":[{"interface":"eth0"}]}`} {
		if got, err := parseNeighbours([]byte(text)); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

// A program that says too much, or does not end, costs bounded memory and time, and is told.
func TestLLDPThatMisbehaves(t *testing.T) {
	for name, script := range map[string]string{
		"it says too much": "#!/bin/sh\nwhile echo 0123456789012345678901234567890123456789; do :; done\n",
		"it hangs":         "#!/bin/sh\nsleep 60\n",
		"it fails":         "#!/bin/sh\ndate +%N >&2\nexit 1\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "lldpcli"), []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			t.Setenv("PATH", dir+":/usr/bin:/bin")
			l, began := &lldp{socket: dir}, time.Now()
			all, warning := l.neighbours(t.Context(), began)
			if took := time.Since(began); len(all) != 0 || warning != unknown || took > 3*lldpTime {
				t.Errorf("got %v, %q after %s", all, warning, took)
			}
		})
	}
	t.Run("it warns", func(t *testing.T) {
		dir := t.TempDir()
		script := "#!/bin/sh\necho 2026-11-27T06:00:00 [WARN] odd >&2\necho '{\"lldp\":[{}]}'\n"
		if err := os.WriteFile(filepath.Join(dir, "lldpcli"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", dir+":/usr/bin:/bin")
		if all, warning := (&lldp{socket: dir}).neighbours(t.Context(), time.Now()); len(all) != 0 || warning != "" {
			t.Errorf("what it warns of disturbs: %v, %q", all, warning)
		}
	})
	for _, socket := range []string{"", filepath.Join(t.TempDir(), "nobody")} {
		if all, warning := (&lldp{socket: socket}).neighbours(t.Context(), time.Now()); len(all) != 0 || warning != "" {
			t.Errorf("without lldpd at %q: %v, %q", socket, all, warning)
		}
	}
}
