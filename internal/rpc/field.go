package rpc

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirlb/weir/internal/model"
)

// fields reads fields of a message and collects what is wrong with them, so that a user sees all of
// it at once. Paths are those of the JSON that users write.
type fields struct{ errs []error }

// mostErrors bounds how many reasons a refusal has: nobody mends more at a time, and each costs those behind it.
const mostErrors = 128

func (f *fields) refuse(path, format string, args ...any) {
	if len(f.errs) >= mostErrors {
		return
	}
	f.errs = append(f.errs, &model.FieldError{Field: path, Reason: fmt.Sprintf(format, args...)})
}

func (f *fields) err() error { return errors.Join(f.errs...) }

// refused says whether a reason to refuse path was found already.
func (f *fields) refused(path string) bool {
	for _, err := range model.FieldErrors(f.err()) {
		if err.Field == path {
			return true
		}
	}
	return false
}

// add takes over the field errors of a check of the whole value, except where reading the field
// failed already.
func (f *fields) add(err error) {
	for _, e := range model.FieldErrors(err) {
		if len(f.errs) < mostErrors && !f.refused(e.Field) {
			f.errs = append(f.errs, e)
		}
	}
}

func (f *fields) address(path, s string) netip.Addr {
	a, err := netip.ParseAddr(s)
	switch {
	case s == "":
		f.refuse(path, "is required")
	case err != nil:
		f.refuse(path, "must be an IP address, is %.64q", s)
	case a.Is4In6():
		f.refuse(path, "must be written as IPv4, is %s", s)
	case a.Zone() != "":
		f.refuse(path, "must have no zone, is %s", s)
	default:
		return a
	}
	return netip.Addr{}
}

func (f *fields) addresses(path string, list []string) []netip.Addr {
	var all []netip.Addr
	for i, s := range list {
		all = append(all, f.address(fmt.Sprintf("%s[%d]", path, i), s))
	}
	return all
}

// source reads an outer source: an address, which is a prefix of full length, or a prefix.
func (f *fields) source(path, s string) netip.Prefix {
	if !strings.Contains(s, "/") {
		a := f.address(path, s)
		return netip.PrefixFrom(a, a.BitLen())
	}
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4In6() {
		f.refuse(path, "must be a prefix such as 203.0.113.0/24, or an address, is %.64q", s)
	}
	return p
}

// sources reads outer sources, those that are addresses apart.
func (f *fields) sources(path string, list []string) (addresses []netip.Addr, prefixes []netip.Prefix) {
	for i, p := range f.prefixes(path, list) {
		if strings.Contains(list[i], "/") {
			prefixes = append(prefixes, p)
		} else {
			addresses = append(addresses, p.Addr())
		}
	}
	return addresses, prefixes
}

// prefixes reads outer sources as prefixes.
func (f *fields) prefixes(path string, list []string) []netip.Prefix {
	var all []netip.Prefix
	for i, s := range list {
		all = append(all, f.source(fmt.Sprintf("%s[%d]", path, i), s))
	}
	return all
}

// anyPort reads a port, or model.AllPorts. A wrong one is not taken for that, of which other things hold.
func (f *fields) anyPort(path string, n uint32) uint16 {
	if n == model.AllPorts {
		return model.AllPorts
	}
	return max(f.port(path, n), 1)
}

// oneOf reads a word that must be one of some; left out, it is the first.
func oneOf[T ~string](f *fields, path, s string, words ...T) T {
	if s == "" {
		return words[0]
	}
	if !slices.Contains(words, T(s)) {
		f.refuse(path, "must be one of %v, is %.64q", words, s)
	}
	return T(s)
}

func (f *fields) port(path string, n uint32) uint16 {
	if n == 0 || n > 65535 {
		f.refuse(path, "must be 1 to 65535, is %d", n)
		return 0
	}
	return uint16(n)
}

func (f *fields) protocol(path, s string) model.Protocol {
	p, err := model.ParseProtocol(s)
	if err != nil {
		f.refuse(path, "%v", err)
	}
	return p
}

func (f *fields) slot(path string, n uint32) model.Slot {
	if n == 0 || n > model.MaxBackends {
		f.refuse(path, "must be 1 to %d, is %d", model.MaxBackends, n)
		return 0
	}
	return model.Slot(n)
}

// name reads the name of a node or VIP.
func (f *fields) name(path, s string) string {
	if !model.ValidName(s) {
		f.refuse(path, "must be a DNS label (lower-case letters, digits and -, at most 63), is %.64q", s)
	}
	return s
}

func addressStrings(list []netip.Addr) []string {
	all := make([]string, 0, len(list))
	for _, a := range list {
		all = append(all, a.String())
	}
	return all
}

// sourceStrings writes what sources reads.
func sourceStrings(addresses []netip.Addr, prefixes []netip.Prefix) []string {
	all := addressStrings(addresses)
	for _, p := range prefixes {
		all = append(all, p.String())
	}
	return all
}

// prefixStrings writes what prefixes reads; one of full length as an address.
func prefixStrings(list []netip.Prefix) []string {
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

// optional writes an address that may be left out.
func optional(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
