/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Full NAT, towards the client: a backend's segment to a NAT address and port, which name the
 * session's row, goes in VXLAN to the client's host.
 */
#pragma once

#include "mux/martian.h"
#include "mux/nat/rewrite.h"
#include "mux/nat/session.h"

/* The largest header that is put before a packet. */
enum { NAT_ROOM = sizeof(struct ipv6hdr) + sizeof(struct vxlan_front) };

/* The frame, to one of the NAT addresses. */
static __always_inline enum verdict reply_parse(struct xdp_md *ctx, struct packet *p)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 header;

	if (parse_ethernet(data, end, p) != PARSED_OK || parse_ip(data, end, p) != PARSED_OK ||
	    p->protocol != IPPROTO_TCP)
		return VERDICT_DROP_NAT_OTHER;
	header =
		p->ethertype == bpf_htons(ETH_P_IP) ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	if (!packet_is_whole(p))
		p->limit = bpf_xdp_get_buff_len(ctx); /* a frame in several buffers */
	if (!packet_is_whole(p) || p->l4 - p->l3 != header ||
	    parse_transport_full(data, end, p) != PARSED_OK)
		return VERDICT_DROP_NAT_OTHER;
	return VERDICT_NONE;
}

/* Reads the client's host of a session. */
static __always_inline enum verdict reply_host(struct vxlan_ctx *v, __u32 number, bool over_v6)
{
	const struct nat_host *host = bpf_map_lookup_elem(&nat_hosts, &number);
	__u32 next_hop;
	struct next_hop *hop;

	if (!host)
		return VERDICT_DROP_NO_NEXT_HOP;
	v->tunnel = over_v6 ? host->v6 : host->v4;
	next_hop = over_v6 ? host->next_hop6 : host->next_hop4;
	hop = bpf_map_lookup_elem(&next_hops, &next_hop);
	if (!next_hop || !hop)
		return VERDICT_DROP_NO_NEXT_HOP;
	__builtin_memcpy(v->macs, hop->macs, sizeof(v->macs));
	return VERDICT_NONE;
}

/* Reads what a backend's segment needs of its session: the client in n, its host in v. */
static __noinline enum verdict reply_session(struct nat_ctx *n, struct vxlan_ctx *v)
{
	const struct packet *p = &n->inner;
	struct overlay_session *s = session_at(n->number);
	const struct nat_backend *backend;
	const struct nat_attachment *a;
	__u32 number, attachment;
	enum verdict verdict;

	if (!s)
		return VERDICT_DROP_NO_SESSION;
	n->tag = session_tag(n->number);
	if (!tag_is_live(n->tag))
		return VERDICT_DROP_NO_SESSION;
	number = s->rule;
	attachment = s->attachment;
	backend = bpf_map_lookup_elem(&nat_backends, &number);
	a = bpf_map_lookup_elem(&nat_attachments, &attachment);
	if (!backend || !a || !a->vni)
		return VERDICT_DROP_NO_SESSION;
	if (!address_equal(&backend->address, &p->source) ||
	    p->source_port != (backend->port ?: s->vip_port))
		return VERDICT_DROP_NAT_SOURCE;
	n->key.client = s->client;
	n->key.client_port = s->client_port;
	n->key.vip_port = s->vip_port;
	n->address = a->vip;
	n->over_v6 = s->events & NAT_HOST_V6;
	v->vni = a->vni;
	v->attachment = attachment;
	__builtin_memcpy(v->inner_macs, s->client_mac, ETH_ALEN);
	__builtin_memcpy((__u8 *)v->inner_macs + ETH_ALEN, a->gateway_mac, ETH_ALEN);
	verdict = reply_host(v, s->host, n->over_v6);
	if (session_tag(n->number) != n->tag)
		return VERDICT_DROP_NO_SESSION;
	return verdict;
}

/* Does the segment fit in VXLAN? */
static __always_inline enum verdict reply_fits(const struct packet *p, const struct vxlan_ctx *v,
					       bool over_v6)
{
	__u32 family = over_v6;

	barrier_var(family);
	if (family > 1 || !address_is_set(&overlay.addresses[family])) /* for the verifier */
		return VERDICT_DROP_NO_SOURCE;
	if (p->l3_length + nat_overhead(over_v6) <= settings.mtu)
		return VERDICT_NONE;
	if (v->outer.l3_length > settings.mtu)
		return VERDICT_DROP_MERGED;
	/* What may be split is not, but need not come so large. */
	return p->ethertype == bpf_htons(ETH_P_IPV6) || p->dont_fragment ? VERDICT_DROP_TOO_BIG
									 : VERDICT_DROP_NAT_OTHER;
}

/*
 * Moves the head of the frame and writes it anew, from the address that all muxes have: a VTEP that
 * learns does not learn one mux. False: there is no room.
 */
static __always_inline bool reply_write_head(struct xdp_md *ctx, struct vxlan_ctx *v, const bool v4,
					     const bool inner4)
{
	const __u32 ip = v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	const __u32 bytes = ip + sizeof(struct vxlan_front) + sizeof(struct tcphdr) +
			    (inner4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr));
	void *to;

	vxlan_fill(v, &overlay.addresses[!v4], v4, inner4);
	to = move_head(ctx, -(int)(ip + sizeof(struct vxlan_front)), v->outer.l3, v->macs,
		       v4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6), bytes);
	if (!to)
		return false;
	write_vxlan_ip(to, v, &overlay.addresses[!v4], v4);
	write_vxlan(to + ip, v, inner4, true);
	return true;
}

static __always_inline enum verdict reply_family(struct xdp_md *ctx, struct vxlan_ctx *v,
						 struct nat_ctx *n, const bool inner4)
{
	const struct packet *p = &n->inner;
	struct nat_ends ends = {
		.from = &n->address,
		.to = &n->key.client,
		.from_port = n->key.vip_port,
		.to_port = n->key.client_port,
	};
	struct overlay_session *s = session_at(n->number);
	struct nat_segment segment = { .flags = p->tcp_flags };
	__u32 extra = 0;
	bool sent;

	segment.seq = bpf_ntohl(v->tcp[1]);
	segment.ack = bpf_ntohl(v->tcp[2]);
	if (s && !trace_only())
		nat_note_server(s, &segment);
	if (segment.flags & TCP_FLAG_SYN)
		extra = nat_clamp(ctx, p->l4, nat_mss(n->over_v6, inner4));
	nat_rewrite(v, &ends, extra, inner4);
	sent = n->over_v6 ? reply_write_head(ctx, v, false, inner4)
			  : reply_write_head(ctx, v, true, inner4);
	return sent ? VERDICT_NONE : VERDICT_DROP_NO_HEADROOM;
}

static __always_inline enum verdict reply_all(struct xdp_md *ctx, struct vxlan_ctx *v,
					      struct nat_ctx *n)
{
	struct packet p = {};
	enum verdict verdict = reply_parse(ctx, &p);
	bool loaded, inner4 = p.ethertype == bpf_htons(ETH_P_IP);

	if (verdict)
		return verdict;
	n->inner = p;
	n->number = nat_row_of(&p);
	v->outer.l3 = p.l3;
	v->outer.l3_length = p.l3_length;
	v->outer.tos = p.tos;
	/* The inner Ethernet header comes after it: what is loaded there is the outer one. */
	loaded = inner4 ? inside_load(ctx, p.l3, v, true, true)
			: inside_load(ctx, p.l3, v, false, true);
	if (!loaded)
		return VERDICT_DROP_NAT_OTHER;
	verdict = reply_session(n, v);
	verdict = verdict ?: reply_fits(&p, v, n->over_v6);
	if (verdict)
		return verdict;
	v->ethertype = p.ethertype;
	v->length = p.l3_length + sizeof(struct vxlan_front);
	v->hash = (n->number + 1) * 0x9e3779b97f4a7c15ULL;
	return inner4 ? reply_family(ctx, v, n, true) : reply_family(ctx, v, n, false);
}

/* A packet to one of the NAT addresses. */
static __always_inline enum verdict nat_reply(struct xdp_md *ctx)
{
	__u32 row = 0;
	struct vxlan_ctx *v = bpf_map_lookup_elem(&vxlan_ctxs, &row);
	struct nat_ctx *n = nat_ctx();
	enum verdict verdict;

	if (!v || !n)
		return VERDICT_DROP_NO_SESSION;
	verdict = reply_all(ctx, v, n);
	return verdict ?: VERDICT_REPLY_NAT;
}

/* The same as a function of its own, for mux_trace. */
__noinline int nat_replied(struct xdp_md *ctx)
{
	return nat_reply(ctx);
}
