package bgp

import (
	"bytes"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func valid() Config {
	return Config{
		AS: 65010, RouterID: netip.MustParseAddr("10.8.1.2"),
		Peers: []Peer{{Address: netip.MustParseAddr("10.8.1.1"), AS: 65000}},
		Log:   slog.New(slog.DiscardHandler),
	}
}

func TestNewRefusesBadConfiguration(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte(" \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	long := filepath.Join(t.TempDir(), "long")
	if err := os.WriteFile(long, bytes.Repeat([]byte("x"), 81), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name   string
		break_ func(*Config)
		want   string
	}{
		{"no AS", func(c *Config) { c.AS = 0 }, "our AS must not be 0"},
		{"router id", func(c *Config) { c.RouterID = netip.MustParseAddr("fd00::1") }, "router id must be an IPv4 address, is fd00::1"},
		{"hold time", func(c *Config) { c.HoldTime = time.Second }, "hold time must be at least 3s, is 1s"},
		{"restart time", func(c *Config) { c.GracefulRestart = 2 * time.Hour }, "graceful restart time must be 0 to"},
		{"peer without address", func(c *Config) { c.Peers[0].Address = netip.Addr{} }, "a peer has no address"},
		{"peer without AS", func(c *Config) { c.Peers[0].AS = 0 }, "peer 10.8.1.1: its AS must not be 0"},
		{"peer twice", func(c *Config) { c.Peers = append(c.Peers, c.Peers[0]) }, "peer 10.8.1.1 is named twice"},
		{"bfd", func(c *Config) { c.Peers[0].BFD = time.Millisecond }, "bfd interval must be at least 10ms"},
		{"missing file", func(c *Config) { c.Peers[0].PasswordFile = "/does/not/exist" }, "read the password of peer 10.8.1.1: open /does/not/exist"},
		{"empty file", func(c *Config) { c.Peers[0].PasswordFile = empty }, "is empty"},
		{"long password", func(c *Config) { c.Peers[0].PasswordFile = long }, "has 81 bytes"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			config := valid()
			c.break_(&config)
			_, err := New(config)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want it to say %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("error has more than one line: %q", err)
			}
		})
	}
	if _, err := New(valid()); err != nil {
		t.Errorf("the valid configuration: %v", err)
	}
}

func TestPasswordFileOpenToAllIsWarnedOf(t *testing.T) {
	for mode, want := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o644: true} {
		var out bytes.Buffer
		config := valid()
		config.Log = slog.New(slog.NewTextHandler(&out, nil))
		config.Peers[0].PasswordFile = filepath.Join(t.TempDir(), "password")
		if err := os.WriteFile(config.Peers[0].PasswordFile, []byte("s3cret\n"), mode); err != nil {
			t.Fatal(err)
		}
		s, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		if s.peers[0].password != "s3cret" {
			t.Errorf("password %q", s.peers[0].password)
		}
		if got := strings.Contains(out.String(), "open to every user"); got != want {
			t.Errorf("mode %o: warned: %t, want %t: %s", mode, got, want, out.String())
		}
		if strings.Contains(out.String(), "s3cret") {
			t.Error("the password was logged")
		}
	}
}

func TestAnnounceLeavesOutWhatHasNoNextHop(t *testing.T) {
	config := valid()
	config.NextHop4 = netip.MustParseAddr("10.8.1.2")
	s, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	v4, v6 := netip.MustParsePrefix("203.0.113.1/32"), netip.MustParsePrefix("2001:db8::1/128")
	err = s.Announce(plain([]netip.Prefix{v4, v6}))
	if err == nil || !strings.Contains(err.Error(), "announce 2001:db8::1/128: there is no address of its family") {
		t.Errorf("error %v", err)
	}
	if len(s.announced) != 1 || s.announced[v4].Prefix != v4 {
		t.Errorf("announced %v, want only %s", s.announced, v4)
	}
}
