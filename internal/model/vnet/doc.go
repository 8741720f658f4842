// Package vnet holds the nouns of virtual networks: networks of tenants, their workloads, and the cluster's overlay, as
// users write them; attachments, hosts and ports, as muxes and hosts run them. Layer 0, as package model.
//
//	VirtualNetwork (VNI, of a tenant) ── Workload (addresses, MAC, on an interface of a host)
//	      ▲
//	      └── model.Attachment: a VIP under an address of the network
//
// Hosts of virtual networks have numbers, which FBTs name: model.MuxBackend.Host is one.
package vnet
