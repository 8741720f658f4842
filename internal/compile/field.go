package compile

import (
	"net/netip"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlb/weir/internal/model"
)

// Fields reads fields of a message and collects what is wrong with them, so that a user sees all of
// it at once.
type Fields struct{ refusals }

// read ends the reading of a value.
func read[T any](value T, f *Fields) (T, error) { return value, f.Err() }

// validated is read, with a check of the whole value.
func validated[T interface{ Validate() error }](value T, f *Fields) (T, error) {
	f.Add(value.Validate())
	return value, f.Err()
}

// Address reads an address that must be there.
func (f *Fields) Address(path, s string) netip.Addr {
	a, err := netip.ParseAddr(s)
	switch {
	case s == "":
		f.Refuse(path, "is required")
	case err != nil:
		f.Refuse(path, "must be an IP address, is %.64q", s)
	case a.Is4In6():
		f.Refuse(path, "must be written as IPv4, is %s", s)
	case a.Zone() != "":
		f.Refuse(path, "must have no zone, is %s", s)
	default:
		return a
	}
	return netip.Addr{}
}

// Addresses reads a list of them.
func (f *Fields) Addresses(path string, list []string) []netip.Addr {
	var all []netip.Addr
	for i, s := range list {
		f.enter(path, i)
		all = append(all, f.Address("", s))
		f.leave()
	}
	return all
}

// source reads an outer source: an address, which is a prefix of full length, or a prefix.
func (f *Fields) source(path, s string) netip.Prefix {
	if !strings.Contains(s, "/") {
		a := f.Address(path, s)
		return netip.PrefixFrom(a, a.BitLen())
	}
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4In6() {
		f.Refuse(path, "must be a prefix such as 203.0.113.0/24, or an address, is %.64q", s)
	}
	return p
}

// Prefixes reads outer sources as prefixes.
func (f *Fields) Prefixes(path string, list []string) []netip.Prefix {
	var all []netip.Prefix
	for i, s := range list {
		f.enter(path, i)
		all = append(all, f.source("", s))
		f.leave()
	}
	return all
}

// AnyPort reads a port, or model.AllPorts. A wrong one is not taken for that, of which other things hold.
func (f *Fields) AnyPort(path string, n uint32) uint16 {
	if n == model.AllPorts {
		return model.AllPorts
	}
	return max(f.Port(path, n), 1)
}

// Port reads a port.
func (f *Fields) Port(path string, n uint32) uint16 {
	if n == 0 || n > 65535 {
		f.Refuse(path, "must be 1 to 65535, is %d", n)
		return 0
	}
	return uint16(n)
}

// Protocol reads the name of a protocol.
func (f *Fields) Protocol(path, s string) model.Protocol {
	p, err := model.ParseProtocol(s)
	if err != nil {
		f.Refuse(path, "%v", err)
	}
	return p
}

// AddressTexts writes what Addresses reads.
func AddressTexts(list []netip.Addr) []string {
	all := make([]string, 0, len(list))
	for _, a := range list {
		all = append(all, a.String())
	}
	return all
}

// SourceTexts writes what Prefixes reads; one of full length as an address.
func SourceTexts(list []netip.Prefix) []string {
	all := make([]string, 0, len(list))
	for _, p := range list {
		if p.IsSingleIP() {
			all = append(all, p.Addr().String())
		} else {
			all = append(all, p.String())
		}
	}
	return all
}

// OptionalAddress writes an address that may be left out.
func OptionalAddress(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// PrefixTexts writes prefixes, addresses as those of full length.
func PrefixTexts(prefixes []netip.Prefix) []string {
	var texts []string
	for _, p := range prefixes {
		texts = append(texts, p.String())
	}
	return texts
}

// ParsePrefixes reads prefixes; its errors name field[i].
func ParsePrefixes(field string, texts []string) ([]netip.Prefix, error) {
	var f Fields
	return f.Prefixes(field, texts), f.Err()
}

// Duration reads one that may be left out.
func (f *Fields) Duration(path string, p *durationpb.Duration, byDefault time.Duration) time.Duration {
	if p == nil {
		return byDefault
	}
	if err := p.CheckValid(); err != nil {
		f.Refuse(path, "must be a duration, is %v", p)
		return byDefault
	}
	return p.AsDuration()
}

// OptionalDuration writes a duration that is left out when it is 0.
func OptionalDuration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// Below returns the field errors of err with their paths put below path.
func Below(path string, err error) error {
	var list model.FieldErrorList
	list.Below(path, err)
	return list.Err()
}
