package manifest

import (
	"fmt"
	"net/netip"

	"github.com/weirlb/weir/internal/model"
)

// snat reads who leaves as a VIP.
func snat(o *object) *model.SNAT {
	if o.fields == nil {
		return nil
	}
	s := model.SNAT{
		Preallocate: uint32(o.get("preallocate").number(0, model.MaxMaxPorts, model.DefaultPreallocate)),
		MaxPorts:    uint32(o.get("maxPorts").number(model.RangePorts, model.MaxMaxPorts, model.DefaultMaxPorts)),
		RequestRate: uint32(o.get("requestRate").number(1, model.MaxRequestRate, model.DefaultRequestRate)),
		Reserved:    defaulted(o.get("reserved"), model.DefaultReserved(), model.ParsePortRange),
		Except:      defaulted(o.get("except"), model.DefaultExcept(), destination),
		Filtering:   model.Filtering(o.get("filtering").text("")),
		Exhausted:   model.Exhausted(o.get("exhausted").text("")),
		IdleTimeout: o.get("idleTimeout").duration(model.DefaultSNATIdle),
	}
	for _, w := range o.get("workloads").required().list() {
		s.Workloads = append(s.Workloads, workload(w.object()))
	}
	o.end()
	s = s.WithDefaults()
	return &s
}

func workload(o *object) model.SNATWorkload {
	w := model.SNATWorkload{
		Address: o.get("address").required().address(),
		Host:    o.get("host").required().text(""),
		Tunnel:  o.get("tunnel").address(),
	}
	o.end()
	return w
}

// defaulted reads a list that has a default; "none" alone, or no element, is an empty one.
func defaulted[T any](v value, byDefault []T, read func(string) (T, error)) []T {
	if v.node == nil {
		return byDefault
	}
	var list []T
	elements := v.list()
	for _, element := range elements {
		text := element.text("")
		if len(elements) == 1 && text == model.None {
			break
		}
		one, err := read(text)
		if err != nil {
			element.refuse("%v", err)
			continue
		}
		list = append(list, one)
	}
	return list
}

func destination(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, fmt.Errorf("must be a prefix such as 10.0.0.0/8, is %s", quote(text))
	}
	return p, nil
}

type snatSpec struct {
	Workloads   []workloadSpec  `json:"workloads"`
	Preallocate uint32          `json:"preallocate"`
	MaxPorts    uint32          `json:"maxPorts"`
	RequestRate uint32          `json:"requestRate"`
	Reserved    []string        `json:"reserved"`
	Except      []string        `json:"except"`
	Filtering   model.Filtering `json:"filtering"`
	Exhausted   model.Exhausted `json:"exhausted"`
	IdleTimeout string          `json:"idleTimeout"`
}

type workloadSpec struct {
	Address netip.Addr `json:"address"`
	Host    string     `json:"host"`
	Tunnel  netip.Addr `json:"tunnel,omitzero"`
}

func writeSNAT(s *model.SNAT) *snatSpec {
	if s == nil {
		return nil
	}
	written := &snatSpec{
		Preallocate: s.Preallocate, MaxPorts: s.MaxPorts, RequestRate: s.RequestRate,
		Reserved: listed(s.Reserved), Except: listed(s.Except),
		Filtering: s.Filtering, Exhausted: s.Exhausted, IdleTimeout: s.IdleTimeout.String(),
	}
	for _, w := range s.Workloads {
		written.Workloads = append(written.Workloads, workloadSpec(w))
	}
	return written
}

func listed[T fmt.Stringer](list []T) []string {
	texts := make([]string, 0, len(list))
	for _, value := range list {
		texts = append(texts, value.String())
	}
	return texts
}
