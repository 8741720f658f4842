package bgp

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"time"
)

// Config of a Speaker.
type Config struct {
	AS       uint32
	RouterID netip.Addr // IPv4
	Peers    []Peer     // none: nothing is announced to anybody, and the rest does not matter

	// Where packets for announced prefixes go, by family: the mux's own addresses. A family
	// without one can't be announced.
	NextHop4 netip.Addr
	NextHop6 netip.Addr

	HoldTime        time.Duration // of a silent session; 0: DefaultHoldTime; whole seconds
	GracefulRestart time.Duration // how long peers keep the routes of a speaker that restarts; 0: off

	Log *slog.Logger
}

// Peer is a router to announce to.
type Peer struct {
	Address      netip.Addr
	AS           uint32
	PasswordFile string        // TCP MD5 (RFC 2385); empty: none
	BFD          time.Duration // interval of BFD packets, three lost detect; 0: off
	EVPN         bool          // takes MAC/IP advertisements (address family l2vpn evpn)
}

// DefaultHoldTime is how long a session lives without a keepalive, if nothing else is said.
const DefaultHoldTime = 9 * time.Second

// The shortest times that the protocols and GoBGP's timers allow.
const (
	minHoldTime        = 3 * time.Second
	maxGracefulRestart = 4095 * time.Second
	minBFD             = 10 * time.Millisecond
)

// Validate says everything that is wrong with c.
func (c Config) Validate() error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(c.Peers) == 0 {
		return nil
	}
	if c.AS == 0 {
		refuse("our AS must not be 0")
	}
	if !c.RouterID.Is4() || c.RouterID.IsUnspecified() {
		refuse("router id must be an IPv4 address, is %s", c.RouterID)
	}
	if c.HoldTime != 0 && c.HoldTime < minHoldTime {
		refuse("hold time must be at least %s, is %s", minHoldTime, c.HoldTime)
	}
	if c.GracefulRestart < 0 || c.GracefulRestart > maxGracefulRestart {
		refuse("graceful restart time must be 0 to %s, is %s", maxGracefulRestart, c.GracefulRestart)
	}
	known := map[netip.Addr]bool{}
	for _, p := range c.Peers {
		if !p.Address.IsValid() {
			refuse("a peer has no address")
			continue
		}
		if known[p.Address] {
			refuse("peer %s is named twice", p.Address)
		}
		known[p.Address] = true
		if p.AS == 0 {
			refuse("peer %s: its AS must not be 0", p.Address)
		}
		if p.BFD != 0 && p.BFD < minBFD {
			refuse("peer %s: bfd interval must be at least %s, is %s", p.Address, minBFD, p.BFD)
		}
	}
	return errors.Join(errs...)
}

// maxPassword is the kernel's bound (TCP_MD5SIG_MAXKEYLEN).
const maxPassword = 80

// readPassword reads a peer's password; white space around it does not count.
func readPassword(log *slog.Logger, p Peer) (string, error) {
	if p.PasswordFile == "" {
		return "", nil
	}
	text, err := os.ReadFile(p.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("read the password of peer %s: %w", p.Address, err)
	}
	password := strings.TrimSpace(string(text))
	if password == "" {
		return "", fmt.Errorf("read the password of peer %s: %s is empty", p.Address, p.PasswordFile)
	}
	if len(password) > maxPassword {
		return "", fmt.Errorf("read the password of peer %s: %s has %d bytes, more than the %d that TCP MD5 takes",
			p.Address, p.PasswordFile, len(password), maxPassword)
	}
	if info, err := os.Stat(p.PasswordFile); err == nil && info.Mode().Perm()&0o007 != 0 {
		log.Warn("password file is open to every user: chmod 600 it", "peer", p.Address.String(), "file", p.PasswordFile)
	}
	return password, nil
}

// oneLine joins the reasons of err by semicolons.
func oneLine(err error) error {
	return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
}
