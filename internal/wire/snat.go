package wire

import (
	"errors"
	"fmt"
	"net/netip"

	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/model"
)

// SNATKeyToProto writes k.
func SNATKeyToProto(k model.SNATKey) *weirv1.SNATKey {
	return &weirv1.SNATKey{Vip: compile.OptionalAddress(k.VIP), Address: compile.OptionalAddress(k.Address)}
}

// SNATKeyFromProto reads what SNATKeyToProto wrote.
func SNATKeyFromProto(p *weirv1.SNATKey) (model.SNATKey, error) {
	var f fields
	return f.snatKey(p), f.Err()
}

func (f *fields) snatKey(p interface {
	GetVip() string
	GetAddress() string
},
) model.SNATKey {
	return model.SNATKey{VIP: f.Address("vip", p.GetVip()), Address: f.Address("address", p.GetAddress())}
}

// MuxSNATToProto writes s.
func MuxSNATToProto(s model.MuxSNAT) *weirv1.MuxSNAT {
	return &weirv1.MuxSNAT{
		Vip: compile.OptionalAddress(s.Key.VIP), Address: compile.OptionalAddress(s.Key.Address), Tunnel: compile.OptionalAddress(s.Tunnel),
		Ranges: RangesToProto(s.Ranges), Tenant: s.Tenant, Ping: s.Ping, Written: uint64(s.Written),
	}
}

// MuxSNATFromProto reads what MuxSNATToProto wrote.
func MuxSNATFromProto(p *weirv1.MuxSNAT) (model.MuxSNAT, error) {
	var f fields
	s := model.MuxSNAT{
		Key: f.snatKey(p), Tunnel: f.Address("tunnel", p.GetTunnel()), Ranges: f.ranges("ranges", p.GetRanges()),
		Tenant: p.GetTenant(), Ping: p.GetPing(), Written: model.Generation(p.GetWritten()),
	}
	return s, f.Err()
}

// HostSNATToProto writes s.
func HostSNATToProto(s model.HostSNAT) *weirv1.HostSNAT {
	p := &weirv1.HostSNAT{
		Vip: compile.OptionalAddress(s.Key.VIP), Address: compile.OptionalAddress(s.Key.Address), Tunnel: compile.OptionalAddress(s.Tunnel),
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
		Key: f.snatKey(p), Tunnel: f.Address("tunnel", p.GetTunnel()),
		Ranges: f.ranges("ranges", p.GetRanges()), Reclaim: f.ranges("reclaim", p.GetReclaim()),
		Filtering: oneOf(&f, "filtering", p.GetFiltering(), model.FilterAddressAndPort, model.FilterAddress, model.FilterNone),
		Exhausted: oneOf(&f, "exhausted", p.GetExhausted(), model.ExhaustedReject, model.ExhaustedDrop),
		MaxPorts:  p.GetMaxPorts(), KeepPorts: p.GetKeepPorts(), Written: model.Generation(p.GetWritten()), Tenant: p.GetTenant(),
		IdleTimeout: f.Duration("idleTimeout", p.GetIdleTimeout(), model.DefaultSNATIdle),
	}
	for i, text := range p.GetExcept() {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			f.Refuse(fmt.Sprintf("except[%d]", i), "must be a prefix, is %q", text)
		}
		s.Except = append(s.Except, prefix)
	}
	held := make(map[model.Range]bool, len(s.Ranges))
	for _, r := range s.Ranges {
		held[r] = true
	}
	for i, r := range s.Reclaim {
		if !held[r] {
			f.Refuse(fmt.Sprintf("reclaim[%d]", i), "is %d, which is not among the ranges", r)
			break
		}
	}
	return s, f.Err()
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
	return f.ranges("ranges", numbers), f.Err()
}

func (f *fields) ranges(path string, numbers []uint32) []model.Range {
	if len(numbers) == 0 {
		return nil
	}
	ranges := make([]model.Range, 0, len(numbers))
	for i, n := range numbers {
		if n > uint32(model.RangeOf(65535)) || i > 0 && n <= numbers[i-1] {
			f.Refuse(fmt.Sprintf("%s[%d]", path, i), "must be at most %d, and more than the one before, is %d", model.RangeOf(65535), n)
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
		errs = append(errs, compile.Below(fmt.Sprintf("snatRemoved[%d]", i), err))
	}
	return keys, errors.Join(errs...)
}
