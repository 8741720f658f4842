/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The way to a tunnel's end, by the kernel's routes, and the outer header. */
#pragma once

#include "net/xdp/encap.h"
#include "switch/maps.h"

/*
 * Asks the kernel for the port and the neighbour of an outer packet. What it says holds for this
 * jiffy: a route that changes is found as soon as an ASIC would have it.
 */
static __noinline long route(struct xdp_md *ctx, const struct tunnel *tunnel, struct way *way)
{
	struct bpf_fib_lookup fib = {};
	long known;

	if (!tunnel || !way)
		return BPF_FIB_LKUP_RET_NOT_FWDED;
	fib.ifindex = ctx->ingress_ifindex;
	fib.l4_protocol = IPPROTO_IPIP;
	fib.tot_len = 1; /* so that the MTU is told */
	if (address_is_v4(&tunnel->destination)) {
		fib.family = AF_INET;
		fib.ipv4_src = tunnel->source.words[3];
		fib.ipv4_dst = tunnel->destination.words[3];
	} else {
		fib.family = AF_INET6;
		for (int i = 0; i < 4; i++) {
			fib.ipv6_src[i] = tunnel->source.words[i];
			fib.ipv6_dst[i] = tunnel->destination.words[i];
		}
	}
	known = bpf_fib_lookup(ctx, &fib, sizeof(fib), 0);
	way->mtu = fib.tot_len;
	way->port = fib.ifindex;
	way->tunnel = tunnel->destination.words[3];
	__builtin_memcpy(way->macs, fib.dmac, ETH_ALEN);
	__builtin_memcpy((void *)way->macs + ETH_ALEN, fib.smac, ETH_ALEN);
	way->jiffy = known == BPF_FIB_LKUP_RET_SUCCESS ? bpf_jiffies64() : 0;
	return known;
}

static __always_inline __u32 ttl_at(const struct packet *p)
{
	return p->ethertype == bpf_htons(ETH_P_IP) ? offsetof(struct iphdr, ttl)
						   : offsetof(struct ipv6hdr, hop_limit);
}

/* As a router does; false: this was the last hop. */
static __always_inline bool decrease_ttl(void *data, void *end, const struct packet *p)
{
	if (p->ethertype == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = data + sizeof(struct ethhdr);
		__u32 check;

		if ((void *)(ip + 1) > end || ip->ttl <= 1)
			return false;
		ip->ttl--;
		check = ip->check + (__u32)bpf_htons(0x0100); /* RFC 1624 */
		ip->check = check + (check >= 0xffff);
	} else {
		struct ipv6hdr *ip = data + sizeof(struct ethhdr);

		if ((void *)(ip + 1) > end || ip->hop_limit <= 1)
			return false;
		ip->hop_limit--;
	}
	return true;
}

static __always_inline bool push(struct xdp_md *ctx, const struct packet *p, const __u32 *macs,
				 const struct outer *outer, bool v4)
{
	void *to;

	if (v4) {
		to = move_head(ctx, -(int)sizeof(struct iphdr), sizeof(struct ethhdr), macs,
			       bpf_htons(ETH_P_IP), sizeof(struct iphdr));
		if (to)
			write_outer_v4(to, p, outer);
	} else {
		to = move_head(ctx, -(int)sizeof(struct ipv6hdr), sizeof(struct ethhdr), macs,
			       bpf_htons(ETH_P_IPV6), sizeof(struct ipv6hdr));
		if (to)
			write_outer_v6(to, p, outer);
	}
	return to;
}

static __always_inline enum verdict forward(struct xdp_md *ctx, struct packet *p, __u32 row,
					    __u32 hash, __u32 *port)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	const struct tunnel *tunnel = bpf_map_lookup_elem(&tunnels, &row);
	struct way *way = bpf_map_lookup_elem(&ways, &row);
	enum verdict verdict = VERDICT_FORWARD;
	const __u32 *macs;
	struct outer outer;
	__u32 own[3];
	long known;
	bool v4;

	if (!tunnel || !way)
		return VERDICT_PASS_NO_HOST;
	barrier_var(data); /* else the check is left out, as implied by the parser's */
	if (data + sizeof(struct ethhdr) + sizeof(struct iphdr) > end)
		return VERDICT_PASS_MALFORMED;
	if (*(__u8 *)(data + sizeof(struct ethhdr) + ttl_at(p)) <= 1)
		return VERDICT_PASS_TTL;
	macs = way->macs;
	*port = way->port;
	v4 = address_is_v4(&tunnel->destination);
	if (way->jiffy != bpf_jiffies64() || way->tunnel != tunnel->destination.words[3]) {
		known = route(ctx, tunnel, way);
		*port = way->port;
		if (known == BPF_FIB_LKUP_RET_NO_NEIGH) { /* the kernel finds it, and sends this */
			verdict = VERDICT_FORWARD_NEIGHBOR;
			__builtin_memcpy(own, data, sizeof(own));
			macs = own;
		} else if (known != BPF_FIB_LKUP_RET_SUCCESS) {
			return VERDICT_PASS_NO_ROUTE;
		}
	}
	if (verdict == VERDICT_FORWARD &&
	    p->l3_length + (v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr)) > way->mtu)
		return VERDICT_DROP_TOO_BIG;

	/* From here on the packet is changed: what fails is dropped, not passed. */
	if (!decrease_ttl(data, end, p))
		return VERDICT_DROP_NO_HEADROOM;
	outer.source = &tunnel->source;
	outer.destination = &tunnel->destination;
	outer.label = hash;
	return push(ctx, p, macs, &outer, v4) ? verdict : VERDICT_DROP_NO_HEADROOM;
}
