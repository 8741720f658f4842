package wire

import (
	"errors"
	"fmt"
	"net/netip"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/model"
)

// SwitchUpdate is one step of what a switch holds.
type SwitchUpdate struct {
	Generation model.Generation // that the step leads to
	Snapshot   bool             // these are all entries
	Entries    []SwitchEntry    // new or changed
	Removed    []netip.Addr     // VIPs
}

// SwitchEntry is a VIP as a switch is to hold it.
type SwitchEntry struct {
	VIP      netip.Addr
	Inner    netip.Addr     // valid: VIP is a TIP, and packets come to it in IP-in-IP, for Inner
	Members  []SwitchMember // in the order of the ECMP group
	Announce bool           // routers may be told
	Sources  []netip.Addr   // of a TIP: outer sources that packets come from, in order; none: any
}

// SwitchMember is a member of a VIP's ECMP group.
type SwitchMember struct {
	Tunnel  netip.Addr
	Entries uint32 // of the group; at least 1
	TIP     bool   // Tunnel is one of another switch
}

// SwitchUpdateToProto writes u.
func SwitchUpdateToProto(u SwitchUpdate) *weirv1.SyncSwitchResponse {
	p := &weirv1.SyncSwitchResponse{
		Generation: uint64(u.Generation), Snapshot: u.Snapshot, Removed: compile.AddressTexts(u.Removed),
	}
	for _, e := range u.Entries {
		entry := &weirv1.SwitchEntry{Vip: e.VIP.String(), Announce: e.Announce}
		if e.Inner.IsValid() {
			entry.Inner, entry.Sources = e.Inner.String(), compile.AddressTexts(e.Sources)
		}
		for _, m := range e.Members {
			entry.Members = append(entry.Members, &weirv1.SwitchMember{Tunnel: m.Tunnel.String(), Entries: m.Entries, Tip: m.TIP})
		}
		p.Entries = append(p.Entries, entry)
	}
	return p
}

// SwitchUpdateFromProto reads what SwitchUpdateToProto wrote.
func SwitchUpdateFromProto(p *weirv1.SyncSwitchResponse) (SwitchUpdate, error) {
	u := SwitchUpdate{Generation: model.Generation(p.GetGeneration()), Snapshot: p.GetSnapshot()}
	var errs []error
	for i, e := range p.GetEntries() {
		var f fields
		entry := SwitchEntry{VIP: f.Address("vip", e.GetVip()), Announce: e.GetAnnounce()}
		if e.GetInner() != "" {
			entry.Inner, entry.Sources = f.Address("inner", e.GetInner()), f.Addresses("sources", e.GetSources())
		}
		for j, m := range e.GetMembers() {
			path := fmt.Sprintf("members[%d]", j)
			entry.Members = append(entry.Members, SwitchMember{Tunnel: f.Address(path+".tunnel", m.GetTunnel()), Entries: m.GetEntries(), TIP: m.GetTip()})
			if m.GetEntries() == 0 {
				f.Refuse(path+".entries", "must be at least 1")
			}
		}
		if len(entry.Members) == 0 {
			f.Refuse("members", "is required")
		}
		u.Entries = append(u.Entries, entry)
		errs = append(errs, compile.Below(fmt.Sprintf("entries[%d]", i), f.Err()))
	}
	var f fields
	u.Removed = f.Addresses("removed", p.GetRemoved())
	errs = append(errs, f.Err())
	return u, errors.Join(errs...)
}
