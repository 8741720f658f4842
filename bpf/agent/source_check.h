/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Anti-spoofing: a workload may send from its own addresses alone. The agent knows those of
 * backends and of workloads with source NAT; of others the host's routes say whether they are
 * behind the interface. A VIP is behind none. Checked twice: where the workload's packet comes in,
 * and where it leaves by the uplink.
 */
#pragma once

#include "abi/shared/gue.h"
#include "agent/maps.h"
#include "agent/parse.h"
#include "net/packet.h"
#include "net/skb/decap.h"

/* Unspecified (DHCP, duplicate address detection), or link-local, which is not routed. */
static __always_inline bool address_is_of_link(const struct address *a)
{
	if (address_is_v4(a))
		return !a->words[3] ||
		       (a->words[3] & bpf_htonl(0xffff0000)) == bpf_htonl(0xa9fe0000);
	return !address_is_set(a) || (a->words[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000);
}

/* What the routes say of a source. */
enum source_route {
	SOURCE_ELSEWHERE = 0,
	SOURCE_BEHIND, /* the host sends to it by the interface */
	SOURCE_NO_ROUTES, /* the kernel forwards nothing from there: it drops what is not for itself
			   */
};

/* Does the host send to the packet's source by the interface of ifindex? */
static __noinline enum source_route source_route(struct __sk_buff *skb, const struct packet *p,
						 __u32 ifindex)
{
	struct bpf_fib_lookup way = { .ifindex = ifindex, .tot_len = 1 };
	long err;

	if (p->ethertype == bpf_htons(ETH_P_IP)) {
		way.family = AF_INET;
		way.ipv4_src = p->destination.words[3];
		way.ipv4_dst = p->source.words[3];
	} else {
		way.family = AF_INET6;
		__builtin_memcpy(way.ipv6_src, &p->destination, sizeof(way.ipv6_src));
		__builtin_memcpy(way.ipv6_dst, &p->source, sizeof(way.ipv6_dst));
	}
	err = bpf_fib_lookup(skb, &way, sizeof(way), BPF_FIB_LOOKUP_SKIP_NEIGH);
	if (err < 0 || err == BPF_FIB_LKUP_RET_FWD_DISABLED)
		return SOURCE_NO_ROUTES;
	return err == BPF_FIB_LKUP_RET_SUCCESS && way.ifindex == ifindex ? SOURCE_BEHIND
									 : SOURCE_ELSEWHERE;
}

/* An IPv4-mapped address in an IPv6 header is invalid, and would match the IPv4 one here. */
static __always_inline bool source_is_mapped(const struct packet *p)
{
	return p->ethertype == bpf_htons(ETH_P_IPV6) && address_is_v4(&p->source);
}

/* What came from a workload's interface: from an address that is there? */
static __noinline enum verdict source_check(struct __sk_buff *skb, const struct packet *p,
					    __u32 ifindex)
{
	struct address source = p->source;
	const __u32 *home;

	if (!settings.check_sources)
		return VERDICT_NONE;
	if (source_is_mapped(p))
		return VERDICT_DROP_SPOOFED_SOURCE;
	home = bpf_map_lookup_elem(&workloads, &source);
	if (home ? *home == ifindex
		 : address_is_of_link(&source) || source_route(skb, p, ifindex) != SOURCE_ELSEWHERE)
		return VERDICT_NONE;
	return VERDICT_DROP_SPOOFED_SOURCE;
}

/* The addresses behind any tags, in p. False: there are more tags than we follow. */
static __always_inline bool source_read(struct __sk_buff *skb, struct packet *p)
{
	__u32 at = offsetof(struct ethhdr, h_proto), l3;
	__be32 v4[2] = {};

	for (int tags = 0; tags <= FRAME_TAGS_MAX; tags++) {
		if (bpf_skb_load_bytes(skb, at, &p->ethertype, sizeof(p->ethertype)))
			return false;
		if (!ethertype_is_vlan(p->ethertype))
			break;
		at += sizeof(struct vlan_header);
	}
	l3 = at + sizeof(p->ethertype);
	if (p->ethertype == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, l3 + offsetof(struct iphdr, saddr), v4, sizeof(v4)))
			return false;
		address_from_v4(&p->source, v4[0]);
		address_from_v4(&p->destination, v4[1]);
	} else if (p->ethertype == bpf_htons(ETH_P_IPV6)) {
		l3 += offsetof(struct ipv6hdr, saddr);
		return !bpf_skb_load_bytes(skb, l3, &p->source, 2 * sizeof(p->source));
	}
	return !ethertype_is_vlan(p->ethertype);
}

/*
 * What leaves by the uplink and came from the interface of ifindex: if that is a workload's, is the
 * source still the workload's? Or the host's own: then netfilter may have made it so (masquerade).
 * Here no address of the link passes: nobody routes it. It reads the packet itself, for whatever
 * from_workload has let pass may have fooled the parser.
 */
static __noinline enum verdict source_check_leaving(struct __sk_buff *skb, __u32 ifindex)
{
	struct packet p = {};
	const __u32 *home;

	if (!settings.check_sources || !bpf_map_lookup_elem(&workload_links, &ifindex))
		return VERDICT_NONE;
	if (!source_read(skb, &p))
		return VERDICT_DROP_TAGGED;
	if (p.ethertype != bpf_htons(ETH_P_IP) && p.ethertype != bpf_htons(ETH_P_IPV6))
		return VERDICT_NONE;
	home = bpf_map_lookup_elem(&workloads, &p.source);
	if (source_is_mapped(&p))
		return VERDICT_DROP_SPOOFED_SOURCE;
	if (home ? !*home || *home == ifindex : source_route(skb, &p, ifindex) == SOURCE_BEHIND)
		return VERDICT_NONE;
	return VERDICT_DROP_SPOOFED_SOURCE;
}

/*
 * What a program of ours sends by the uplink meets to_uplink once more. It is known there by the
 * control block, which holds a secret: whatever comes through the host's stack has another.
 */
static __always_inline void departure_seal(struct __sk_buff *skb)
{
	skb->cb[0] = hash_key.words[0];
	skb->cb[1] = hash_key.words[1];
}

static __always_inline bool departure_is_sealed(struct __sk_buff *skb)
{
	__u32 seal = skb->cb[0];

	/* Of what the host sends it is 0, mostly: that is known without a look at the secret. */
	if (!seal || seal != hash_key.words[0] || skb->cb[1] != hash_key.words[1])
		return false;
	skb->cb[0] = 0; /* for this way out alone */
	skb->cb[1] = 0;
	return true;
}

/*
 * Is it GUE as this host's agent sends it, from a workload's tunnel address? Or IP-in-IP or GRE,
 * which hosts believe only of VIPs that switches hold: workloads of others may have such tunnels.
 */
static __noinline bool source_is_agent(const struct packet *p)
{
	bool in_gue = p->protocol == IPPROTO_UDP && p->destination_port == bpf_htons(GUE_PORT);
	bool in_ip = protocol_is_ip(p->protocol) || p->protocol == IPPROTO_GRE;
	struct address source = p->source;

	return (in_gue || (in_ip && settings.steered)) && bpf_map_lookup_elem(&tunnels, &source);
}

/*
 * Does the host itself send, from an address that is no workload here? Then it is the host's own,
 * as of a management interface: a VIP that lists it for source NAT must not cut the host off.
 */
static __always_inline bool source_is_no_workload(const struct packet *p, __u32 ifindex)
{
	struct address source = p->source;

	return !ifindex && !bpf_map_lookup_elem(&workloads, &source);
}

/*
 * Of a workload's tunnel address other hosts believe that it hands on packets of the workload's
 * endpoint, and what it says of connections that leave the muxes.
 */
static __always_inline bool source_speaks_as_agent(const struct packet *p)
{
	return settings.check_sources && source_is_agent(p);
}

/*
 * What leaves by the uplink in a session's name, by way of an interface that has no workload: not
 * from an address that is behind a third one? What the host itself sends, nothing here can stop.
 */
static __noinline enum verdict source_check_passing(const struct packet *p, __u32 ifindex)
{
	struct address source = p->source;
	const __u32 *home;

	if (!settings.check_sources || !ifindex)
		return VERDICT_NONE;
	home = bpf_map_lookup_elem(&workloads, &source);
	return home && *home && *home != ifindex ? VERDICT_DROP_SPOOFED_SOURCE : VERDICT_NONE;
}
