// Package keyspace names the keys of etcd under which a cluster's state lies. Names that stand for several keys end in a
// slash: they are prefixes.
//
//	/weir/v1/generation      written with every change of the desired state: its revision is the generation
//	/weir/v1/leader          the manager that leads; its creation revision is the epoch
//	/weir/v1/managers/NAME   a replica of the manager, and its member of the embedded etcd
//	/weir/v1/restored        the store is restored, and what was given out after the backup is not given to others yet
//	/weir/v1/hash-key        the key of the pool's flow hash, made once
//	/weir/v1/fastpath-keys   the keys that sign Fastpath's redirects
//	/weir/v1/syn-secrets     the secrets of SYN cookies
//	/weir/v1/fbt-masters     what keys of FBTs are derived from
//	/weir/v1/vips/NAME       a VIP as its user wrote it, hosts resolved, with its address, when it was written and by whom
//	/weir/v1/pools/NAME      an address pool
//	/weir/v1/fabrics/NAME    the network of a data center
//	/weir/v1/prefix-lists/NAME        a prefix list, by the ids of its chunks
//	/weir/v1/prefix-chunks/LIST/ID    a chunk of its prefixes, which never changes; written before the list that names it
//	/weir/v1/networks/NAME   a virtual network, hosts resolved
//	/weir/v1/overlay         what virtual networks need of the cluster
//	/weir/v1/host-numbers/NAME        the number of a host in virtual networks, which stays after it for a while
//	/weir/v1/conditions/NAME the conditions of a VIP, as the leader found them, and since when
//	/weir/v1/steps/NAME      what is in force of a VIP's overload policy
//	/weir/v1/placements/IP   where the VIP of that address is of switches
//	/weir/v1/tables/VIP/...  an endpoint's slots and buckets
//	/weir/v1/ports/VIP/IP    the port ranges of a SNAT client
//	/weir/v1/nodes/NAME      a registered mux, host or switch
//	/weir/v1/status/NAME     the last report of a node
//	/weir/v1/health/HOST     the health of a host's backends
//	/weir/v1/streams/NAME    the node's stream is open; on the lease of the manager that holds it
//	/weir/v1/excluded/NAME   the node's stream is open, and it is out of the pool as it does not answer; on the same lease
//	/weir/v1/neighbors/NAME  the mux renews its lease to answer ARP and NDP; on the same lease
//	/weir/v1/neighbor-puts/NAME       the last note of the mux in neighbors/, and never deleted
//	/weir/v1/ready/LEASE     the generation that all hosts of a manager have; on the same lease
//	/weir/events/v1/...      events, on leases; no part of the State
//	/weir/trust/v1/...       who may do what: the CA, join tokens, principals, users, tenants
//	/weir/audit/v1/...       what was changed and what was refused
package keyspace

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/weirlb/weir/internal/model"
)

// The State.
const (
	Root         = "/weir/v1/"
	Generation   = Root + "generation"
	HashKey      = Root + "hash-key"
	FastpathKeys = Root + "fastpath-keys"
	SYNSecrets   = Root + "syn-secrets"
	FBTMasters   = Root + "fbt-masters"
	Leader       = Root + "leader"
	Restored     = Root + "restored"
	Managers     = Root + "managers/"
	VIPs         = Root + "vips/"
	Pools        = Root + "pools/"
	Fabrics      = Root + "fabrics/"
	PrefixLists  = Root + "prefix-lists/"
	PrefixChunks = Root + "prefix-chunks/" // LIST/ID; read before the lists, by their order
	Networks     = Root + "networks/"
	Overlay      = Root + "overlay"
	HostNumbers  = Root + "host-numbers/"
	Conditions   = Root + "conditions/"
	Steps        = Root + "steps/"
	Placements   = Root + "placements/" // by the VIP's address
	Tables       = Root + "tables/"
	Ports        = Root + "ports/"
	Nodes        = Root + "nodes/"
	Status       = Root + "status/"
	Health       = Root + "health/"
	Streams      = Root + "streams/"
	Excluded     = Root + "excluded/"
	Neighbors    = Root + "neighbors/"
	NeighborPuts = Root + "neighbor-puts/" // no part of a State
	Ready        = Root + "ready/"
)

// Who may do what. It has no part in generations: a State does not hold it, and every manager may write it.
const (
	TrustRoot      = "/weir/trust/v1/"
	Trust          = TrustRoot + "version"         // written with every change
	TenantsVersion = TrustRoot + "tenants-version" // written with every change of tenants
	CA             = TrustRoot + "ca"
	Tokens         = TrustRoot + "tokens/"
	TokenUses      = TrustRoot + "token-uses/" // TOKEN/NAME/KEY: a join by a token, beyond those that are in its document
	Principals     = TrustRoot + "principals/"
	Users          = TrustRoot + "users/"
	Tenants        = TrustRoot + "tenants/"
)

// Logs: they lie beside the State, so that nobody wakes up by them but those who ask for them.
const (
	Events        = "/weir/events/v1/"
	AuditChanges  = "/weir/audit/v1/changes/"
	AuditRefusals = "/weir/audit/v1/refusals/"
)

// Split returns the prefix of a key of the State, and the name that follows it; a key of its own is its prefix.
func Split(key string) (prefix, name string) {
	kind, name, found := strings.Cut(strings.TrimPrefix(key, Root), "/")
	if !found {
		return key, ""
	}
	return Root + kind + "/", name
}

// Table is the key of an endpoint's table: tables/203.0.113.10/TCP/80.
func Table(k model.EndpointKey) string {
	return fmt.Sprintf("%s%s/%s/%d", Tables, k.VIP, k.Protocol, k.Port)
}

// ParseTable reads a key that Table made.
func ParseTable(key string) (model.EndpointKey, error) {
	parts := strings.Split(strings.TrimPrefix(key, Tables), "/")
	if len(parts) != 3 {
		return model.EndpointKey{}, fmt.Errorf("read key %s of the store: it names no endpoint", key)
	}
	vip, err1 := netip.ParseAddr(parts[0])
	protocol, err2 := model.ParseProtocol(parts[1])
	port, err3 := strconv.ParseUint(parts[2], 10, 16)
	if err := errors.Join(err1, err2, err3); err != nil {
		return model.EndpointKey{}, fmt.Errorf("read key %s of the store: %w", key, err)
	}
	return model.EndpointKey{VIP: vip, Protocol: protocol, Port: uint16(port)}, nil
}

// PortsOf is the key of the port ranges of a SNAT client: ports/203.0.113.20/10.1.0.2.
func PortsOf(k model.SNATKey) string { return fmt.Sprintf("%s%s/%s", Ports, k.VIP, k.Address) }

// ParsePorts reads a key that PortsOf made.
func ParsePorts(key string) (model.SNATKey, error) {
	first, second, _ := strings.Cut(strings.TrimPrefix(key, Ports), "/")
	vip, err1 := netip.ParseAddr(first)
	address, err2 := netip.ParseAddr(second)
	if err := errors.Join(err1, err2); err != nil {
		return model.SNATKey{}, fmt.Errorf("read key %s of the store: %w", key, err)
	}
	return model.SNATKey{VIP: vip, Address: address}, nil
}
