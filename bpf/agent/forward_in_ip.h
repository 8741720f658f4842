/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Forwards a packet to another host in the tunnel that it came in, where GUE can't be. */
#pragma once

#include "agent/forward.h"
#include "agent/rx_ctx.h"
#include "net/skb/quote.h"
#include "net/skb/ttl.h"

/*
 * Of packets that stay in IP the TTL says the chain step, as they have no room for more: one above
 * the last says QUERY. It only falls, so what is the last is so for ever: no loops.
 */
enum {
	FORWARD_TTL_QUERY = 64,
	FORWARD_TTL_LAST = 32, /* deliver: FORWARDED too, as there is no way back */
};

/*
 * Several packets in one buffer, which GRO or the sender's offload made: the kernel can take them
 * apart as long as they are in IP, or GRE, alone. So they stay in it.
 */
static __always_inline bool forward_keeps_ip(const struct __sk_buff *skb, const struct rx_ctx *a)
{
	return skb->gso_size && !a->tunnel.entropy;
}

/* Does what a host of the VIP sent in IP say QUERY? */
static __noinline bool forward_says_query(struct __sk_buff *skb, const struct rx_ctx *a)
{
	return ttl_read(skb, &a->outer) > FORWARD_TTL_LAST;
}

/*
 * As forward(), but in IP: only the outer addresses and the TTL change. It leaves from the tunnel
 * that the header has, as there is no way back: steering may have made a->outer.destination another
 * one.
 */
static __noinline enum verdict forward_in_ip(struct __sk_buff *skb, struct rx_ctx *a)
{
	bool v4 = address_is_v4(&a->hop.to), query = a->hop.step == GUE_CHAIN_QUERY;
	struct address addresses[2] = { {}, a->hop.to };
	__u32 at = a->outer.l3 + offsetof(struct ipv6hdr, saddr);
	__be32 tunnel;

	if (a->outer.ethertype != (v4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6)))
		return VERDICT_DROP_STEER_MERGED;

	/* From here on the packet is touched: fail closed. */
	if (ttl_write(skb, &a->outer, query ? FORWARD_TTL_QUERY : FORWARD_TTL_LAST))
		return VERDICT_DROP_CHAIN;
	if (!v4) {
		if (bpf_skb_load_bytes(skb, at + sizeof(addresses[0]), &addresses[0],
				       sizeof(addresses[0])) ||
		    bpf_skb_store_bytes(skb, at, addresses, sizeof(addresses),
					BPF_F_RECOMPUTE_CSUM | BPF_F_INVALIDATE_HASH))
			return VERDICT_DROP_CHAIN;
		return VERDICT_NONE;
	}
	if (bpf_skb_load_bytes(skb, a->outer.l3 + offsetof(struct iphdr, daddr), &tunnel,
			       sizeof(tunnel)) ||
	    icmp_rewrite_v4(skb, a->outer.l3, SOURCE, a->outer.source.words[3], tunnel) ||
	    icmp_rewrite_v4(skb, a->outer.l3, DESTINATION, tunnel, addresses[1].words[3]))
		return VERDICT_DROP_CHAIN;
	return VERDICT_NONE;
}

/*
 * Forwards in IP what must stay in it, all else in GUE: an enum verdict. Not static: the verifier
 * looks at it once.
 */
__noinline int forward_on(struct __sk_buff *skb, struct rx_ctx *a __arg_nonnull)
{
	if (forward_keeps_ip(skb, a))
		return forward_in_ip(skb, a);
	if (!a->tunnel.entropy)
		a->tunnel.entropy = forward_entropy(&a->inner);
	return forward(skb, a);
}
