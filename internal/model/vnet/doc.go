// Package vnet holds the nouns of virtual networks as users write them: networks of tenants, their workloads, and the
// cluster's overlay. Layer 0, as package model.
//
//	VirtualNetwork (VNI, of a tenant) ── Workload (addresses, MAC, on an interface of a host)
//	      ▲
//	      └── model.Attachment: a VIP under an address of the network
package vnet
