/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The way to a tunnel's end, by the kernel's routes, and the outer header. */
#pragma once

#include "net/xdp/encap.h"
#include "switch/maps.h"

/* Asks the kernel for the port and the neighbour of an outer packet. */
static __always_inline long route(struct xdp_md *ctx, const struct packet *p,
				  const struct tunnel *tunnel, bool v4, struct bpf_fib_lookup *way)
{
	__builtin_memset(way, 0, sizeof(*way));
	way->ifindex = ctx->ingress_ifindex;
	if (v4) {
		way->family = AF_INET;
		way->l4_protocol = inner_protocol(p);
		way->tot_len = p->l3_length + sizeof(struct iphdr);
		way->ipv4_src = tunnel->source.words[3];
		way->ipv4_dst = tunnel->destination.words[3];
	} else {
		way->family = AF_INET6;
		way->l4_protocol = inner_protocol(p);
		way->tot_len = p->l3_length + sizeof(struct ipv6hdr);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			way->ipv6_src[i] = tunnel->source.words[i];
			way->ipv6_dst[i] = tunnel->destination.words[i];
		}
	}
	return bpf_fib_lookup(ctx, way, sizeof(*way), 0);
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

static __always_inline enum verdict forward(struct xdp_md *ctx, struct packet *p,
					    const struct tunnel *tunnel, __u32 hash, __u32 *port)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct outer outer = { .source = &tunnel->source, .destination = &tunnel->destination };
	bool v4 = address_is_v4(&tunnel->destination);
	enum verdict verdict = VERDICT_FORWARD;
	struct bpf_fib_lookup way;
	__u32 macs[3];
	long known;
	void *to;

	barrier_var(data); /* else the check is left out, as implied by the parser's */
	if (data + sizeof(struct ethhdr) + sizeof(struct iphdr) > end)
		return VERDICT_PASS_MALFORMED;
	if (*(__u8 *)(data + sizeof(struct ethhdr) + ttl_at(p)) <= 1)
		return VERDICT_PASS_TTL;
	known = route(ctx, p, tunnel, v4, &way);
	if (known == BPF_FIB_LKUP_RET_FRAG_NEEDED)
		return VERDICT_DROP_TOO_BIG;
	if (known == BPF_FIB_LKUP_RET_NO_NEIGH) { /* the kernel asks for it, and sends this one */
		verdict = VERDICT_FORWARD_NEIGHBOR;
		__builtin_memcpy(macs, data, sizeof(macs));
	} else if (known == BPF_FIB_LKUP_RET_SUCCESS) {
		__builtin_memcpy(macs, way.dmac, ETH_ALEN);
		__builtin_memcpy((void *)macs + ETH_ALEN, way.smac, ETH_ALEN);
		*port = way.ifindex;
	} else {
		return VERDICT_PASS_NO_ROUTE;
	}

	/* From here on the packet is changed: what fails is dropped, not passed. */
	if (!decrease_ttl(data, end, p))
		return VERDICT_DROP_NO_HEADROOM;
	outer.label = hash;
	if (v4) {
		to = move_head(ctx, -(int)sizeof(struct iphdr), sizeof(struct ethhdr), macs,
			       bpf_htons(ETH_P_IP), sizeof(struct iphdr));
		if (!to)
			return VERDICT_DROP_NO_HEADROOM;
		write_outer_v4(to, p, &outer);
	} else {
		to = move_head(ctx, -(int)sizeof(struct ipv6hdr), sizeof(struct ethhdr), macs,
			       bpf_htons(ETH_P_IPV6), sizeof(struct ipv6hdr));
		if (!to)
			return VERDICT_DROP_NO_HEADROOM;
		write_outer_v6(to, p, &outer);
	}
	return verdict;
}
