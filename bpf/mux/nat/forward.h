/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Full NAT, towards the backend (NGLB, section II): a client's segment leaves VXLAN here, from the
 * NAT address and port that its session's row is.
 */
#pragma once

#include "mux/nat/rewrite.h"
#include "mux/nat/session.h"
#include "mux/select.h"
#include "net/counter.h"

/* Does the segment begin a connection? */
static __always_inline bool nat_opens(const struct nat_ctx *n)
{
	return (n->inner.tcp_flags & (TCP_FLAG_SYN | TCP_FLAG_ACK)) == TCP_FLAG_SYN;
}

/*
 * Has the segment of an attachment full NAT? Keeps what nat_forward() needs of it. A session goes
 * before all else: a connection that has begun with full NAT ends with it. One without a session
 * has begun otherwise, or lost it: the server's host knows, and resets what it does not know.
 */
static __always_inline bool nat_takes(const struct mux_ctx *w, const struct vxlan_ctx *v)
{
	struct nat_ctx *n = nat_ctx();

	if (!n)
		return false;
	if (!v->numbered) /* no TCP in one piece */
		return v->attached & ATTACHED_NAT;
	n->inner = w->packet;
	n->slices = w->slices;
	n->affinity = w->endpoint->flags & ENDPOINT_AFFINITY;
	n->endpoint = w->endpoint->id;
	n->endpoint_port = w->endpoint_port;
	if (nat_find(n, v))
		return true;
	return v->attached & ATTACHED_NAT && nat_opens(n);
}

/* A connection that would begin, for who asks. */
static __always_inline enum verdict nat_explain(struct nat_ctx *n)
{
	__u32 number = nat_choose(n);
	const struct nat_backend *backend = bpf_map_lookup_elem(&nat_backends, &number);

	if (!number || !backend)
		return VERDICT_DROP_NO_BACKEND;
	n->backend = *backend;
	n->number = 0;
	return VERDICT_NONE;
}

/* Moves the head of the frame and writes it anew. False: there is no room. */
static __always_inline bool nat_write_out(struct xdp_md *ctx, struct vxlan_ctx *v, __u32 inner_l3,
					  const bool inner4)
{
	const __u32 words = (inner4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr)) / 4;
	__u32 l3 = v->outer.l3;
	__u32 *to = move_head(ctx, (int)inner_l3 - (int)l3, l3, v->macs, v->ethertype,
			      4 * words + sizeof(struct tcphdr));

	if (!to)
		return false;
#pragma unroll
	for (__u32 i = 0; i < words; i++)
		to[i] = v->ip[i];
#pragma unroll
	for (__u32 i = 0; i < 5; i++)
		to[words + i] = v->tcp[i];
	return true;
}

static __always_inline enum verdict nat_send(struct xdp_md *ctx, struct vxlan_ctx *v,
					     struct nat_ctx *n, const bool inner4)
{
	const struct packet *p = &n->inner;
	struct nat_ends ends = {
		.from = &n->address,
		.to = &n->backend.address,
		.to_port = n->backend.port ?: p->destination_port,
	};
	__u32 extra = 0;

	if (address_is_v4(&n->backend.address) != inner4)
		return VERDICT_DROP_NO_BACKEND;
	if (!nat.prefixes[!inner4].mask)
		return VERDICT_DROP_NO_SOURCE;
	nat_address_of(n->number, inner4, &n->address, &n->port);
	ends.from_port = n->port;
	if (!nat_congestion(v, inner4))
		return VERDICT_DROP_ECN;
	if (p->tcp_flags & TCP_FLAG_SYN)
		extra = nat_clamp(ctx, p->l4, nat_mss(n->over_v6, inner4));
	nat_rewrite(v, &ends, extra, inner4);
	return nat_write_out(ctx, v, p->l3, inner4) ? VERDICT_NONE : VERDICT_DROP_NO_HEADROOM;
}

/* The session of the segment, whose headers are loaded. */
static __always_inline enum verdict nat_look(struct nat_ctx *n, const struct vxlan_ctx *v)
{
	struct nat_segment segment = {
		.flags = n->inner.tcp_flags,
		.seq = bpf_ntohl(v->tcp[1]),
		.ack = bpf_ntohl(v->tcp[2]),
	};
	enum verdict verdict;

	__builtin_memcpy(n->client_mac, (const __u8 *)v->inner_macs + ETH_ALEN, ETH_ALEN);
	if (trace_only() && (__s32)n->number < 0 &&
	    (segment.flags & (TCP_FLAG_SYN | TCP_FLAG_ACK)) == TCP_FLAG_SYN)
		return nat_explain(n);
	verdict = nat_session(n, segment.seq);
	return verdict ?: nat_use(n, &segment);
}

static __always_inline enum verdict nat_forward_family(struct xdp_md *ctx, struct vxlan_ctx *v,
						       struct nat_ctx *n, const bool inner4)
{
	const __u32 header = inner4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	const struct packet *p = &n->inner;
	struct next_hop *hop;
	enum verdict verdict;
	__u32 l3 = p->l3;

	/* Behind options of IP the segment would be hard to find. */
	if (p->l4 - l3 != header || !inside_load(ctx, l3, v, inner4, true))
		return VERDICT_DROP_INNER_OTHER;
	if (p->l3_length > settings.mtu)
		return VERDICT_DROP_MERGED;
	verdict = nat_look(n, v);
	if (verdict)
		return verdict;
	hop = bpf_map_lookup_elem(&next_hops, &n->backend.next_hop);
	if (!n->backend.next_hop || !hop)
		return VERDICT_DROP_NO_NEXT_HOP;
	__builtin_memcpy(v->macs, hop->macs, sizeof(v->macs));
	v->ethertype = p->ethertype;
	return nat_send(ctx, v, n, inner4);
}

/* A packet of which nat_takes() has kept what is needed here. */
static __always_inline enum verdict nat_forward(struct xdp_md *ctx)
{
	__u32 row = 0, endpoint;
	struct vxlan_ctx *v = bpf_map_lookup_elem(&vxlan_ctxs, &row);
	struct nat_ctx *n = nat_ctx();
	enum verdict verdict;

	if (!v || !n)
		return VERDICT_DROP_NO_SESSION;
	verdict = n->inner.ethertype == bpf_htons(ETH_P_IP) ? nat_forward_family(ctx, v, n, true)
							    : nat_forward_family(ctx, v, n, false);
	if (verdict)
		return verdict;
	endpoint = n->endpoint;
	count(&endpoint_counts, endpoint, v->outer.limit);
	count(&network_counts, v->attachment, v->outer.limit);
	return VERDICT_FORWARD_NAT;
}

/* The same as a function of its own, for mux_trace. */
__noinline int nat_forwarded(struct xdp_md *ctx)
{
	return nat_forward(ctx);
}
