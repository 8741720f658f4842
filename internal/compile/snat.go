package compile

import (
	"fmt"
	"net/netip"

	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

// snatMessage writes s; nil stays nil.
func snatMessage(s *model.SNAT) *weirv1.SNAT {
	if s == nil {
		return nil
	}
	p := &weirv1.SNAT{
		Preallocate: &s.Preallocate, MaxPorts: s.MaxPorts, RequestRate: s.RequestRate,
		Reserved: listed(s.Reserved), Except: listed(s.Except),
		Filtering: string(s.Filtering), Exhausted: string(s.Exhausted), IdleTimeout: durationpb.New(s.IdleTimeout),
	}
	for _, w := range s.Workloads {
		p.Workloads = append(p.Workloads, &weirv1.SNATWorkload{
			Address: OptionalAddress(w.Address), Host: w.Host, Tunnel: OptionalAddress(w.Tunnel),
		})
	}
	return p
}

// listed writes a list that has a default; an empty one is "none".
func listed[T fmt.Stringer](list []T) []string {
	if len(list) == 0 {
		return []string{model.None}
	}
	texts := make([]string, 0, len(list))
	for _, value := range list {
		texts = append(texts, value.String())
	}
	return texts
}

// unlisted reads what listed wrote, or takes the default.
func unlisted[T any](f *Fields, path string, texts []string, byDefault []T, read func(string) (T, error)) []T {
	if len(texts) == 0 {
		return byDefault
	}
	if len(texts) == 1 && texts[0] == model.None {
		return nil
	}
	list := make([]T, 0, len(texts))
	for i, text := range texts {
		value, err := read(text)
		if err != nil {
			f.Refuse(fmt.Sprintf("%s[%d]", path, i), "%v", err)
			continue
		}
		list = append(list, value)
	}
	return list
}

// prefix reads a prefix of destinations.
func prefix(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, fmt.Errorf("must be a prefix such as 10.0.0.0/8, is %.64q", text)
	}
	return p, nil
}

// snat reads what snatMessage wrote, with defaults for what was left out.
func (f *Fields) snat(path string, p *weirv1.SNAT) *model.SNAT {
	if p == nil {
		return nil
	}
	f.enter(path, -1)
	defer f.leave()
	s := model.SNAT{
		Preallocate: model.DefaultPreallocate, MaxPorts: p.GetMaxPorts(), RequestRate: p.GetRequestRate(),
		Reserved:  unlisted(f, "reserved", p.GetReserved(), model.DefaultReserved(), model.ParsePortRange),
		Except:    unlisted(f, "except", p.GetExcept(), model.DefaultExcept(), prefix),
		Filtering: model.Filtering(p.GetFiltering()), Exhausted: model.Exhausted(p.GetExhausted()),
		IdleTimeout: f.Duration("idleTimeout", p.GetIdleTimeout(), model.DefaultSNATIdle),
	}
	if p.Preallocate != nil {
		s.Preallocate = p.GetPreallocate()
	}
	if p.GetIdleTimeout() != nil && s.IdleTimeout == 0 {
		f.Refuse("idleTimeout", "must be %s to %s, is 0s", model.MinIdle, model.MaxIdle)
	}
	for i, w := range p.GetWorkloads() {
		at := fmt.Sprintf("workloads[%d]", i)
		workload := model.SNATWorkload{Address: f.Address(at+".address", w.GetAddress()), Host: w.GetHost()}
		if w.GetTunnel() != "" {
			workload.Tunnel = f.Address(at+".tunnel", w.GetTunnel())
		}
		s.Workloads = append(s.Workloads, workload)
	}
	s = s.WithDefaults()
	return &s
}
