package rpc

import (
	"errors"
	"fmt"
	"net/netip"

	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

// SNATToProto writes s; nil stays nil.
func SNATToProto(s *model.SNAT) *weirv1.SNAT {
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
			Address: optional(w.Address), Host: w.Host, Tunnel: optional(w.Tunnel),
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
func unlisted[T any](f *fields, path string, texts []string, byDefault []T, read func(string) (T, error)) []T {
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
			f.refuse(fmt.Sprintf("%s[%d]", path, i), "%v", err)
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

// snat reads what SNATToProto wrote, with defaults for what was left out.
func (f *fields) snat(path string, p *weirv1.SNAT) *model.SNAT {
	if p == nil {
		return nil
	}
	s := model.SNAT{
		Preallocate: model.DefaultPreallocate, MaxPorts: p.GetMaxPorts(), RequestRate: p.GetRequestRate(),
		Reserved:  unlisted(f, path+".reserved", p.GetReserved(), model.DefaultReserved(), model.ParsePortRange),
		Except:    unlisted(f, path+".except", p.GetExcept(), model.DefaultExcept(), prefix),
		Filtering: model.Filtering(p.GetFiltering()), Exhausted: model.Exhausted(p.GetExhausted()),
		IdleTimeout: f.duration(path+".idleTimeout", p.GetIdleTimeout(), model.DefaultSNATIdle),
	}
	if p.Preallocate != nil {
		s.Preallocate = p.GetPreallocate()
	}
	if p.GetIdleTimeout() != nil && s.IdleTimeout == 0 {
		f.refuse(path+".idleTimeout", "must be %s to %s, is 0s", model.MinIdle, model.MaxIdle)
	}
	for i, w := range p.GetWorkloads() {
		at := fmt.Sprintf("%s.workloads[%d]", path, i)
		workload := model.SNATWorkload{Address: f.address(at+".address", w.GetAddress()), Host: w.GetHost()}
		if w.GetTunnel() != "" {
			workload.Tunnel = f.address(at+".tunnel", w.GetTunnel())
		}
		s.Workloads = append(s.Workloads, workload)
	}
	s = s.WithDefaults()
	return &s
}

// SNATKeyToProto writes k.
func SNATKeyToProto(k model.SNATKey) *weirv1.SNATKey {
	return &weirv1.SNATKey{Vip: optional(k.VIP), Address: optional(k.Address)}
}

// SNATKeyFromProto reads what SNATKeyToProto wrote.
func SNATKeyFromProto(p *weirv1.SNATKey) (model.SNATKey, error) {
	var f fields
	return f.snatKey(p), f.err()
}

func (f *fields) snatKey(p interface {
	GetVip() string
	GetAddress() string
},
) model.SNATKey {
	return model.SNATKey{VIP: f.address("vip", p.GetVip()), Address: f.address("address", p.GetAddress())}
}

// MuxSNATToProto writes s.
func MuxSNATToProto(s model.MuxSNAT) *weirv1.MuxSNAT {
	return &weirv1.MuxSNAT{
		Vip: optional(s.Key.VIP), Address: optional(s.Key.Address), Tunnel: optional(s.Tunnel),
		Ranges: RangesToProto(s.Ranges), Tenant: s.Tenant, Ping: s.Ping,
	}
}

// MuxSNATFromProto reads what MuxSNATToProto wrote.
func MuxSNATFromProto(p *weirv1.MuxSNAT) (model.MuxSNAT, error) {
	var f fields
	s := model.MuxSNAT{
		Key: f.snatKey(p), Tunnel: f.address("tunnel", p.GetTunnel()), Ranges: f.ranges("ranges", p.GetRanges()),
		Tenant: p.GetTenant(), Ping: p.GetPing(),
	}
	return s, f.err()
}

// HostSNATToProto writes s.
func HostSNATToProto(s model.HostSNAT) *weirv1.HostSNAT {
	p := &weirv1.HostSNAT{
		Vip: optional(s.Key.VIP), Address: optional(s.Key.Address), Tunnel: optional(s.Tunnel),
		Ranges: RangesToProto(s.Ranges), Reclaim: RangesToProto(s.Reclaim),
		Filtering: string(s.Filtering), Exhausted: string(s.Exhausted),
		IdleTimeout: durationpb.New(s.IdleTimeout), MaxPorts: s.MaxPorts, KeepPorts: s.KeepPorts, Written: uint64(s.Written), Tenant: s.Tenant,
	}
	for _, prefix := range s.Except {
		p.Except = append(p.Except, prefix.String())
	}
	return p
}

// HostSNATFromProto reads what HostSNATToProto wrote. It holds that what is reclaimed is held.
func HostSNATFromProto(p *weirv1.HostSNAT) (model.HostSNAT, error) {
	var f fields
	s := model.HostSNAT{
		Key: f.snatKey(p), Tunnel: f.address("tunnel", p.GetTunnel()),
		Ranges: f.ranges("ranges", p.GetRanges()), Reclaim: f.ranges("reclaim", p.GetReclaim()),
		Filtering: oneOf(&f, "filtering", p.GetFiltering(), model.FilterAddressAndPort, model.FilterAddress, model.FilterNone),
		Exhausted: oneOf(&f, "exhausted", p.GetExhausted(), model.ExhaustedReject, model.ExhaustedDrop),
		MaxPorts:  p.GetMaxPorts(), KeepPorts: p.GetKeepPorts(), Written: model.Generation(p.GetWritten()), Tenant: p.GetTenant(),
		IdleTimeout: f.duration("idleTimeout", p.GetIdleTimeout(), model.DefaultSNATIdle),
	}
	for i, text := range p.GetExcept() {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			f.refuse(fmt.Sprintf("except[%d]", i), "must be a prefix, is %q", text)
		}
		s.Except = append(s.Except, prefix)
	}
	held := make(map[model.Range]bool, len(s.Ranges))
	for _, r := range s.Ranges {
		held[r] = true
	}
	for i, r := range s.Reclaim {
		if !held[r] {
			f.refuse(fmt.Sprintf("reclaim[%d]", i), "is %d, which is not among the ranges", r)
			break
		}
	}
	return s, f.err()
}

// RangesToProto writes the numbers of ranges.
func RangesToProto(ranges []model.Range) []uint32 {
	numbers := make([]uint32, 0, len(ranges))
	for _, r := range ranges {
		numbers = append(numbers, uint32(r))
	}
	return numbers
}

// RangesFromProto reads what RangesToProto wrote; they are in order, each once.
func RangesFromProto(numbers []uint32) ([]model.Range, error) {
	var f fields
	return f.ranges("ranges", numbers), f.err()
}

func (f *fields) ranges(path string, numbers []uint32) []model.Range {
	if len(numbers) == 0 {
		return nil
	}
	ranges := make([]model.Range, 0, len(numbers))
	for i, n := range numbers {
		if n > uint32(model.RangeOf(65535)) || i > 0 && n <= numbers[i-1] {
			f.refuse(fmt.Sprintf("%s[%d]", path, i), "must be at most %d, and more than the one before, is %d", model.RangeOf(65535), n)
			break
		}
		ranges = append(ranges, model.Range(n))
	}
	return ranges
}

func snatKeysToProto(keys []model.SNATKey) []*weirv1.SNATKey {
	var all []*weirv1.SNATKey
	for _, k := range keys {
		all = append(all, SNATKeyToProto(k))
	}
	return all
}

func snatKeysFromProto(list []*weirv1.SNATKey) ([]model.SNATKey, error) {
	var keys []model.SNATKey
	var errs []error
	for i, p := range list {
		key, err := SNATKeyFromProto(p)
		keys = append(keys, key)
		errs = append(errs, below(fmt.Sprintf("snatRemoved[%d]", i), err))
	}
	return keys, errors.Join(errs...)
}
