/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Sends on what can't have an FBT among its options: UDP, ICMP errors, fragments, and TCP without
 * room there. What the FBT says stands behind the IP header of the packet inside VXLAN, in front of
 * extension headers; the packet is else as it came.
 */
#pragma once

#include "mux/overlay/push.h"
#include "net/bypass_header.h"

/*
 * The header; see abi/shared/bypass_header.h. False: there is no key. The outer checksum is none
 * (RFC 6935), for of what is not read here nothing tells the sum.
 */
static __always_inline bool inside_header(const struct mux_ctx *w, struct vxlan_ctx *v, __be32 seq)
{
	const struct packet *p = &w->packet;
	const struct fbt_key *key = backend_key(w->backend);
	struct fbt_segment *segment = &v->segment;

	if (!key)
		return false;
	segment->outer = v->tunnel;
	segment->client = p->source;
	segment->vip = p->destination;
	segment->client_port = p->source_port;
	segment->vip_port = p->destination_port;
	segment->seq = seq;
	bypass_header_write((void *)v->fbt, v->next, key, segment, &v->says);
	return true;
}

/* The IP header says that the bypass header follows. */
static __always_inline void header_announce(struct vxlan_ctx *v, __u32 total, const bool inner4)
{
	if (inner4) {
		__u32 life = v->ip[2] & 0xff, protocol = v->ip[2] >> 8 & 0xff;
		__u16 check = checksum_replace(v->ip[2] >> 16, v->ip[0] >> 16, bpf_htons(total));

		check = checksum_replace(check, life | protocol << 8,
					 life | BYPASS_HEADER_PROTOCOL << 8);
		v->ip[2] = life | BYPASS_HEADER_PROTOCOL << 8 | (__u32)check << 16;
		v->ip[0] = (v->ip[0] & 0xffff) | (__u32)bpf_htons(total) << 16;
	} else {
		v->ip[1] = (v->ip[1] & 0xff000000) | BYPASS_HEADER_PROTOCOL << 16 |
			   bpf_htons(total - sizeof(struct ipv6hdr));
	}
}

/* Writes all that stands before the packet's transport. A function of its own, which the verifier
 * walks once. */
__noinline int push_header(struct xdp_md *ctx, bool v4, bool inner4)
{
	__u32 row = 0;
	struct vxlan_ctx *v = bpf_map_lookup_elem(&vxlan_ctxs, &row);
	bool sent;

	if (!v || !(inner4 ? inside_load(ctx, v->inner_l3, v, true, false)
			   : inside_load(ctx, v->inner_l3, v, false, false)))
		return VERDICT_DROP_VXLAN;
	header_announce(v, v->length - sizeof(struct vxlan_front), inner4);

	/* From here on the packet is changed. */
	if (inner4)
		sent = v4 ? vxlan_write_head(ctx, v, true, true, false)
			  : vxlan_write_head(ctx, v, false, true, false);
	else
		sent = v4 ? vxlan_write_head(ctx, v, true, false, false)
			  : vxlan_write_head(ctx, v, false, false, false);
	return sent ? VERDICT_NONE : VERDICT_DROP_NO_HEADROOM;
}

static __always_inline enum verdict push_with_header(struct xdp_md *ctx, const struct mux_ctx *w,
						     struct vxlan_ctx *v)
{
	const struct packet *p = &w->packet;

	if (v->numbered && bpf_xdp_load_bytes(ctx, p->l4, v->tcp, sizeof(v->tcp)))
		return VERDICT_DROP_VXLAN;
	if (!inside_header(w, v, v->numbered ? v->tcp[1] : 0))
		return VERDICT_DROP_NO_HOST_KEY;
	v->inner_l3 = p->l3;
	return push_header(ctx, w->backend->flags & BACKEND_V4,
			   p->ethertype == bpf_htons(ETH_P_IP));
}

/* May the FBT stand among the options? Else the packet gets the bypass header. */
static __always_inline bool inside_has_room(struct xdp_md *ctx, const struct packet *p,
					    const struct vxlan_ctx *v)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 l4 = p->l4;
	struct tcphdr *tcp;

	barrier_var(l4);
	if (l4 > EXTENSIONS_START_MAX)
		return false;
	tcp = data + l4;
	barrier_var(tcp);
	if (!v->numbered || v->next != IPPROTO_TCP || (void *)(tcp + 1) > end)
		return false;
	return tcp->doff * 4 + sizeof(struct fbt) <= sizeof(*tcp) + TCP_OPTIONS_MAX;
}

static __always_inline enum verdict push_vxlan(struct xdp_md *ctx, const struct mux_ctx *w,
					       struct vxlan_ctx *v)
{
	enum verdict verdict = push_prepare(w, v);

	if (verdict)
		return verdict;
	if (!inside_has_room(ctx, &w->packet, v))
		return push_with_header(ctx, w, v);
	return w->packet.ethertype == bpf_htons(ETH_P_IP) ? push_fbt(ctx, w, v, true)
							  : push_fbt(ctx, w, v, false);
}
