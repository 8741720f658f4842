package wire

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/model"
)

// fields reads fields of the messages between managers and nodes, and collects what is wrong with them.
type fields struct{ compile.Fields }

// sources reads outer sources, those that are addresses apart.
func (f *fields) sources(path string, list []string) (addresses []netip.Addr, prefixes []netip.Prefix) {
	for i, p := range f.Prefixes(path, list) {
		if strings.Contains(list[i], "/") {
			prefixes = append(prefixes, p)
		} else {
			addresses = append(addresses, p.Addr())
		}
	}
	return addresses, prefixes
}

// oneOf reads a word that must be one of some; left out, it is the first.
func oneOf[T ~string](f *fields, path, s string, words ...T) T {
	if s == "" {
		return words[0]
	}
	if !slices.Contains(words, T(s)) {
		f.Refuse(path, "must be one of %v, is %.64q", words, s)
	}
	return T(s)
}

func (f *fields) slot(path string, n uint32) model.Slot {
	if n == 0 || n > model.MaxBackends {
		f.Refuse(path, "must be 1 to %d, is %d", model.MaxBackends, n)
		return 0
	}
	return model.Slot(n)
}

// name reads the name of a node or VIP.
func (f *fields) name(path, s string) string {
	if !model.ValidName(s) {
		f.Refuse(path, "must be a DNS label (lower-case letters, digits and -, at most 63), is %.64q", s)
	}
	return s
}

// sourceStrings writes what sources reads.
func sourceStrings(addresses []netip.Addr, prefixes []netip.Prefix) []string {
	all := compile.AddressTexts(addresses)
	for _, p := range prefixes {
		all = append(all, p.String())
	}
	return all
}
