package audit

import (
	"cmp"
	"fmt"
	"path"
	"strings"
	"unicode"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model/vnet"
)

// nouns are what the names in calls are of, by the procedure's noun.
var nouns = map[string]string{
	"VIP": "vip", "VIPs": "vip", "Backends": "vip", "Ports": "vip", "AddressPool": "pool", "PrefixList": "prefixlist", "VirtualNetwork": "network", "Fabric": "fabric", "Node": "node", "Switch": "node", "Manager": "manager", "User": "user", "Tenant": "tenant", "Tenants": "tenant",
}

// nounOf is what a name in a call is of.
func nounOf(procedure string) string {
	name := path.Base(procedure)
	return nouns[strings.TrimLeftFunc(name[min(1, len(name)):], unicode.IsLower)]
}

// subject names what a call is about, as kind/name.
func subject(procedure string, message any) string {
	var names []string
	add := func(kind, name string) { names = append(names, kind+"/"+shortened(name)) }
	switch r := message.(type) {
	case *weirv1.ApplyVIPsRequest:
		addApplied(r, add)
	case *weirv1.ApplyTenantsRequest:
		for _, t := range r.GetTenants() {
			add("tenant", t.GetName())
		}
	case *weirv1.CreateVIPRequest:
		add("vip", r.GetVip().GetName())
	case *weirv1.CreateAddressPoolRequest:
		add("pool", r.GetPool().GetName())
	case *weirv1.CreatePrefixListRequest:
		add("prefixlist", r.GetPrefixList().GetName())
	case *weirv1.CreateVirtualNetworkRequest:
		add("network", r.GetNetwork().GetName())
	case *weirv1.UpdateOverlayRequest, *weirv1.DeleteOverlayRequest:
		add("overlay", vnet.OverlayName)
	case *weirv1.OptimizePlacementRequest:
		add("placement", "auto")
	case *weirv1.CreateUserRequest:
		add("user", r.GetUser().GetName())
	case *weirv1.CreateTokenRequest:
		names = append(names, "token of "+r.GetRole()+"/"+cmp.Or(r.GetName(), "*"))
	case *weirv1.DeleteTokenRequest:
		add("token", r.GetId())
	case *weirv1.JoinRequest:
		add(r.GetRole(), r.GetName())
	case *weirv1.RevokePrincipalRequest:
		add(r.GetRole(), r.GetName())
	case *weirv1.CaptureRequest:
		add("mux", r.GetMux())
	case *weirv1.ObserveRequest:
		addObserved(r, add)
	case interface{ GetName() string }:
		if noun := nounOf(procedure); noun != "" {
			add(noun, r.GetName())
		} else {
			names = append(names, r.GetName())
		}
	}
	const most = 10
	if n := len(names); n > most {
		names = append(names[:most], fmt.Sprintf("and %d more", n-most))
	}
	return shortened(strings.Join(names, " "))
}

// addApplied adds what an apply is about.
func addApplied(r *weirv1.ApplyVIPsRequest, add func(kind, name string)) {
	for _, pool := range r.GetPools() {
		add("pool", pool.GetName())
	}
	for _, list := range r.GetPrefixLists() {
		add("prefixlist", list.GetName())
	}
	for _, n := range r.GetNetworks() {
		add("network", n.GetName())
	}
	for _, o := range r.GetOverlays() {
		add("overlay", o.GetName())
	}
	for _, vip := range r.GetVips() {
		add("vip", vip.GetName())
	}
}

// addObserved adds the muxes that are observed.
func addObserved(r *weirv1.ObserveRequest, add func(kind, name string)) {
	for _, mux := range r.GetMuxes() {
		add("mux", mux)
	}
	if len(r.GetMuxes()) == 0 {
		add("mux", "*")
	}
}

// shortened cuts a text that strangers may have written.
func shortened(s string) string {
	const most = 512
	if len(s) > most {
		s = s[:most] + "..."
	}
	return s
}
