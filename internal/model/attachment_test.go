package model

import (
	"net/netip"
	"strings"
	"testing"
)

func TestValidateAttachments(t *testing.T) {
	attached := func() VIP {
		return VIP{
			Name: "db", Tenant: "platform", Address: netip.MustParseAddr("203.0.113.9"),
			Endpoints: []Endpoint{{Protocol: TCP, Port: 5432}},
			Attachments: []Attachment{
				{Network: "prod", Address: netip.MustParseAddr("10.99.0.1"), Mode: ModeBypass},
				{Network: "test", Address: netip.MustParseAddr("10.99.0.1"), Mode: ModeBypass},
			},
		}
	}
	if err := attached().Validate(); err != nil {
		t.Fatal(err)
	}
	for wrong, change := range map[string]func(*VIP){
		"attachments[0].network: is required":                        func(v *VIP) { v.Attachments[0].Network = "" },
		"attachments[0].network: must be a DNS label":                func(v *VIP) { v.Attachments[0].Network = strings.Repeat("n", 300) },
		"attachments[1].network: is prod again, as attachments[0]":   func(v *VIP) { v.Attachments[1].Network = "prod" },
		"attachments[0].address: must be of the VIP's family (IPv4)": func(v *VIP) { v.Attachments[0].Address = netip.MustParseAddr("fd00::1") },
		"attachments[0].address: must be a routable unicast address": func(v *VIP) { v.Attachments[0].Address = netip.MustParseAddr("224.0.0.1") },
		`attachments[0].mode: must be bypass or full-nat, is "dsr"`:  func(v *VIP) { v.Attachments[0].Mode = "dsr" },
		"attachments: must be at most 4096, are 4097":                func(v *VIP) { v.Attachments = make([]Attachment, 4097) },
		"endpoints[0].protocol: must be TCP in a VIP with attachments of mode full-nat": func(v *VIP) {
			v.Attachments[1].Mode, v.Endpoints[0].Protocol = ModeFullNAT, UDP
		},
		"limits.packets: must be left out of a VIP with attachments": func(v *VIP) { v.Limits = &Limits{Packets: 1} },
		"limits.bytes: must be left out of a VIP with attachments":   func(v *VIP) { v.Limits = &Limits{Bytes: 1} },
		"fastpath: must be left out of a VIP with attachments":       func(v *VIP) { v.Fastpath = &Fastpath{Sources: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/28")}} },
	} {
		vip := attached()
		change(&vip)
		if all := FieldErrors(vip.Validate()); len(all) != 1 || !strings.HasPrefix(all[0].Error(), wrong) {
			t.Errorf("%v, want %q alone", all, wrong)
		}
	}
	full := attached()
	full.Attachments[1].Mode = ModeNATInMux
	if err := full.Validate(); err != nil {
		t.Errorf("full NAT in the mux: %v", err)
	}
	vip := attached()
	vip.Limits = &Limits{Connections: 5}
	vip.Endpoints = append(vip.Endpoints, Endpoint{Protocol: UDP, Port: 53})
	if err := vip.Validate(); err != nil {
		t.Errorf("connections can be limited, and UDP goes: %v", err)
	}
}
