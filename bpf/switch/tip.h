/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A VIP whose packets come from another switch in IP-in-IP, to an address of this one (TIP; Duet,
 * section 5.2): the outer header is taken off, and the group of the TIP chooses.
 */
#pragma once

#include "switch/maps.h"
#include "switch/parse.h"

enum { TOS_ECN = 3, TOS_CE = 3 };

/* Takes so many bytes away behind the Ethernet header. */
static __always_inline bool pull(struct xdp_md *ctx, __u32 bytes, __be16 ethertype)
{
	struct ethhdr eth;

	if (bpf_xdp_load_bytes(ctx, 0, &eth, sizeof(eth)))
		return false;
	eth.h_proto = ethertype;
	return !bpf_xdp_adjust_head(ctx, bytes) && !bpf_xdp_store_bytes(ctx, 0, &eth, sizeof(eth));
}

static __always_inline bool takes_from(const struct host *host, const struct packet *p)
{
	struct tip_source source = { .id = host->id, .address = p->source };

	return host->tip != TIP_LISTED || bpf_map_lookup_elem(&tip_sources, &source);
}

/*
 * Replaces p by the packet inside, which must be for the VIP of this TIP: a switch takes off no
 * header for others. A fragment has no whole packet inside.
 */
static __always_inline enum verdict decapsulate(struct xdp_md *ctx, struct packet *p, __u32 *ports,
						const struct host *host)
{
	__u32 id = host->id;
	const struct address *inner = bpf_map_lookup_elem(&inners, &id);
	__u32 bytes = (__u32)p->l4 - p->l3;
	__u8 tos = p->tos;
	__be16 ethertype;

	if (p->protocol == IPPROTO_IPIP)
		ethertype = bpf_htons(ETH_P_IP);
	else if (p->protocol == IPPROTO_IPV6)
		ethertype = bpf_htons(ETH_P_IPV6);
	else
		return VERDICT_DROP_TIP;
	if (!takes_from(host, p))
		return VERDICT_DROP_TIP_SOURCE;
	if (!inner || !pull(ctx, bytes, ethertype) || parse(ctx, p, ports))
		return VERDICT_DROP_TIP;
	if (!address_equal(&p->destination, inner))
		return VERDICT_DROP_TIP;
	/* Congestion on the way here is told to the host, by the next outer header (RFC 6040). */
	if ((tos & TOS_ECN) == TOS_CE && p->tos & TOS_ECN)
		p->tos |= TOS_CE;
	return VERDICT_NONE;
}

/* The packet inside is not the kernel's: what it does not route by a tunnel comes back here. */
static __always_inline enum verdict verdict_of_tip(enum verdict verdict)
{
	if (verdict == VERDICT_FORWARD || verdict == VERDICT_FORWARD_NEIGHBOR)
		return verdict;
	return verdict < VERDICT_FORWARD ? VERDICT_DROP_TIP : verdict;
}
