package table

import (
	"cmp"
	"fmt"
	"strings"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
)

// Networks has a row for each virtual network.
func Networks(networks []*weirv1.VirtualNetwork) *Table {
	t := New("", "no virtual networks: weir apply -f FILE makes some", "NAME", "TENANT", "VNI", "PREFIXES", "WORKLOADS", "VIPS")
	for _, n := range networks {
		t.Add(n.GetName(), n.GetTenant(), n.GetVni(), strings.Join(n.GetPrefixes(), ","), len(n.GetWorkloads()), len(n.GetStatus().GetVips()))
	}
	return t
}

// Overlay has a row for the overlay.
func Overlay(o *weirv1.Overlay) *Table {
	t := New("", "", "ADDRESSES", "LOCAL PREFIXES")
	t.Add(strings.Join(o.GetAddresses(), ","), strings.Join(o.GetLocalPrefixes(), ","))
	return t
}

// NetworkVIPs has a row for each VIP that is attached to a virtual network.
func NetworkVIPs(vips []*weirv1.NetworkVIP) *Table {
	t := New("  ", "no VIP is attached", "ADDRESS", "VIP", "TENANT", "MODE")
	for _, v := range vips {
		t.Add(v.GetAddress(), cmp.Or(v.GetVip(), "(of another tenant)"), v.GetTenant(), v.GetMode())
	}
	return t
}

// NetworkWorkloads has a row for each workload of a virtual network.
func NetworkWorkloads(workloads []*weirv1.NetworkWorkload) *Table {
	t := New("  ", "no workloads", "NAME", "ADDRESSES", "MAC", "HOST", "INTERFACE")
	for _, w := range workloads {
		t.Add(w.GetName(), strings.Join(w.GetAddresses(), ","), w.GetMac(), w.GetHost(), w.GetInterface())
	}
	return t
}

// Attachments has a row for each virtual network that a VIP is to be in.
func Attachments(attachments []*weirv1.Attachment) *Table {
	t := New("  ", "", "NETWORK", "ADDRESS", "MODE")
	for _, a := range attachments {
		mode := a.GetMode()
		if a.GetNat() == compile.NATMux {
			mode += " in the mux"
		}
		t.Add(a.GetNetwork(), a.GetAddress(), mode)
	}
	return t
}

// AppliedNetwork is what an apply did to a virtual network: "network prod updated, 2 workloads added, detaches db".
func AppliedNetwork(a *weirv1.AppliedVirtualNetwork) string {
	text := fmt.Sprintf("network %s %s", a.GetName(), a.GetChange())
	if a.GetAdded() > 0 {
		text += fmt.Sprintf(", %d workloads added", a.GetAdded())
	}
	if a.GetRemoved() > 0 {
		text += fmt.Sprintf(", %d removed", a.GetRemoved())
	}
	if len(a.GetDetached()) > 0 {
		text += ", VIPs detached: " + strings.Join(a.GetDetached(), ", ")
	}
	for _, line := range a.GetPending() {
		text += "\n  waits: " + line
	}
	return text
}
