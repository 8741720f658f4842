package compile

import (
	"fmt"
	"net/netip"
	"slices"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

// PrefixListMessage writes l without its prefixes, and without the fields that are output only.
func PrefixListMessage(l model.PrefixList) *weirv1.PrefixList {
	return &weirv1.PrefixList{Name: l.Name, Tenant: l.Tenant, Labels: l.Labels}
}

// PrefixSetTexts writes the prefixes of s in order, those of full length as addresses.
func PrefixSetTexts(s model.PrefixSet) []string { return SourceTexts(slices.Collect(s.All())) }

// PrefixList reads and validates a list. Fields that are output only are left aside.
func PrefixList(p *weirv1.PrefixList) (model.PrefixList, error) {
	var f Fields
	list := model.PrefixList{
		Name: p.GetName(), Tenant: p.GetTenant(), Labels: p.GetLabels(),
		Prefixes: model.NewPrefixSet(f.listed("prefixes", p.GetPrefixes())),
	}
	if f.Err() == nil {
		f.Add(list.Validate())
	}
	return list, f.Err()
}

// PrefixLists reads several; the paths of its field errors begin with prefixLists[i].
func PrefixLists(all []*weirv1.PrefixList) ([]model.PrefixList, error) {
	var lists []model.PrefixList
	var errs model.FieldErrorList
	for i, p := range all {
		list, err := PrefixList(p)
		lists = append(lists, list)
		errs.Below(fmt.Sprintf("prefixLists[%d]", i), err)
	}
	return lists, errs.Err()
}

// ListedPrefixes reads prefixes to be put into a list, or taken out of it.
func ListedPrefixes(field string, texts []string) ([]netip.Prefix, error) {
	var f Fields
	return f.listed(field, texts), f.Err()
}

// listedWrong bounds how many wrong prefixes of a list are told.
const listedWrong = 20

// listed reads the prefixes of a list.
func (f *Fields) listed(path string, texts []string) []netip.Prefix {
	if len(texts) > model.MaxListed {
		f.Refuse(path, "must be at most %d, are %d", model.MaxListed, len(texts))
		return nil
	}
	all, wrong := make([]netip.Prefix, 0, len(texts)), 0
	for i, text := range texts {
		p, reason := ParseListed(text)
		if reason == "" {
			all = append(all, p)
			continue
		}
		if wrong++; wrong <= listedWrong {
			f.Refuse(fmt.Sprintf("%s[%d]", path, i), "%s", reason)
		}
	}
	if wrong > listedWrong {
		f.Refuse(path, "%d more of the prefixes are wrong", wrong-listedWrong)
	}
	return all
}

// ParseListed reads a prefix of a list, or an address, or says what is wrong with it.
func ParseListed(text string) (p netip.Prefix, wrong string) {
	if a, err := netip.ParseAddr(text); err == nil {
		if a.Zone() != "" {
			return p, fmt.Sprintf("must have no zone, is %.64q", text)
		}
		p = netip.PrefixFrom(a, a.BitLen())
	} else if p, err = netip.ParsePrefix(text); err != nil {
		return p, fmt.Sprintf("must be an address or a prefix such as 198.51.100.0/24, is %.64q", text)
	}
	return p, model.ListedPrefix(p)
}
