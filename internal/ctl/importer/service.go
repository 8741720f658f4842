package importer

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/events"
)

// Bounds of what is read.
const (
	mostBytes    = 4 << 20
	mostServices = 16384
	mostBackends = 1 << 17 // of all services
	mostNotes    = 1000
	mostDepth    = 16 // of blocks
)

var errTooLarge = errors.New("is too large: split it")

// service is a virtual service.
type service struct {
	line     int
	protocol string
	at       netip.AddrPort
	sticky   bool
	backends []backend
	check    check
}

// backend is a real server.
type backend struct {
	at     netip.AddrPort
	weight uint32
}

// check is a health check; of a service it is that of its backends, which must agree.
type check struct {
	kind     string // "", "tcp" or "http"
	path     string
	host     string
	port     uint32
	interval time.Duration
	timeout  time.Duration
	fall     uint32
}

// result is what was read.
type result struct {
	services []service
	notes    []string
	backends int
	more     int // notes that are not told
}

// note says what has no counterpart.
func (r *result) note(line int, format string, args ...any) {
	if len(r.notes) == mostNotes {
		r.more++
		return
	}
	r.notes = append(r.notes, fmt.Sprintf("line %d: %s", line, events.Printable(fmt.Sprintf(format, args...))))
}

func (r *result) add(s service) error {
	r.backends += len(s.backends)
	if len(r.services) == mostServices || r.backends > mostBackends {
		return errTooLarge
	}
	r.services = append(r.services, s)
	return nil
}

// parseAt reads an address and a port; "0" is all ports.
func parseAt(address, port string) (netip.AddrPort, error) {
	a, err := netip.ParseAddr(address)
	if err != nil || a.Zone() != "" {
		return netip.AddrPort{}, fmt.Errorf("%.64q is no address", address)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%.64q is no port: write it as a number", port)
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(n)), nil
}

// maxWeight is a VIP's.
const maxWeight = 1000000

func parseWeight(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n > maxWeight {
		return 0, fmt.Errorf("%.64q is no weight from 0 to %d", text, maxWeight)
	}
	return uint32(n), nil
}

// vips are the manifests: a VIP for each address, in the order of the text. hosts names the hosts of real servers; one that
// it does not name is named by its address, as a node that has it.
func (r *result) vips(hosts map[netip.Addr]string) []*weirv1.VIP {
	var all []*weirv1.VIP
	byAddress := map[netip.Addr]*weirv1.VIP{}
	taken := map[string]bool{}
	for _, s := range r.services {
		if len(s.backends) == 0 {
			r.note(s.line, "the service has no real server of its own: it is left out")
			continue
		}
		vip := byAddress[s.at.Addr()]
		if vip == nil {
			vip = &weirv1.VIP{Name: nameOf(s.at.Addr()), Address: s.at.Addr().String()}
			byAddress[s.at.Addr()] = vip
			all = append(all, vip)
		}
		key := s.protocol + s.at.String()
		if taken[key] {
			r.note(s.line, "%s %s is there already: it is left out", s.protocol, s.at)
			continue
		}
		taken[key] = true
		vip.Endpoints = append(vip.Endpoints, r.endpoint(s, hosts))
	}
	return slices.DeleteFunc(all, func(v *weirv1.VIP) bool { return len(v.GetEndpoints()) == 0 })
}

func (r *result) endpoint(s service, hosts map[netip.Addr]string) *weirv1.Endpoint {
	e := &weirv1.Endpoint{Protocol: s.protocol, Port: uint32(s.at.Port()), HealthCheck: s.check.message()}
	if s.sticky {
		e.Affinity = "client"
	}
	seen := map[netip.AddrPort]bool{}
	for _, b := range s.backends {
		switch {
		case b.at.Addr().Is4() != s.at.Addr().Is4():
			r.note(s.line, "real server %s is of another family than %s: name its address of that family, and this one as its tunnel", b.at, s.at)
			continue
		case seen[b.at]:
			r.note(s.line, "real server %s is there twice: the second is left out", b.at)
			continue
		}
		seen[b.at] = true
		host := hosts[b.at.Addr()]
		if host == "" {
			host = b.at.Addr().String()
		}
		p := &weirv1.Backend{Address: b.at.Addr().String(), Host: host}
		if b.at.Port() != s.at.Port() {
			p.Port = uint32(b.at.Port())
		}
		if b.weight != 1 {
			p.Weight = proto.Uint32(b.weight)
		}
		e.Backends = append(e.Backends, p)
	}
	return e
}

func (c check) message() *weirv1.HealthCheck {
	if c.kind == "" {
		return nil
	}
	h := &weirv1.HealthCheck{Port: c.port, Fall: c.fall}
	switch c.kind {
	case "http":
		h.Check = &weirv1.HealthCheck_Http{Http: &weirv1.HTTPCheck{Path: c.path, Host: c.host}}
	case "https": // of any certificate, as keepalived does
		h.Check = &weirv1.HealthCheck_Https{Https: &weirv1.HTTPSCheck{Path: c.path, Host: c.host}}
	case "udp": // likewise: it fails when the port is unreachable
		h.Check = &weirv1.HealthCheck_Udp{Udp: &weirv1.UDPCheck{Answer: "optional"}}
	default:
		h.Check = &weirv1.HealthCheck_Tcp{Tcp: &weirv1.TCPCheck{}}
	}
	if c.interval > 0 {
		h.Interval = durationpb.New(c.interval)
	}
	if c.timeout > 0 && (c.interval == 0 || c.timeout <= c.interval) {
		h.Timeout = durationpb.New(c.timeout)
	}
	return h
}

// nameOf is a DNS label of an address.
func nameOf(a netip.Addr) string {
	return "vip-" + strings.Trim(strings.NewReplacer(".", "-", ":", "-").Replace(a.StringExpanded()), "-")
}
