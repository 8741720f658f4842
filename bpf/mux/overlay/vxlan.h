/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A packet of a virtual network's client (NGLB, section IV-A): out of VXLAN, to a backend of the
 * VIP that it is for in that network, and into VXLAN again. Nothing is remembered of it, but where
 * it has full NAT (mux/nat).
 */
#pragma once

#include "mux/ctx.h"
#include "mux/martian.h"
#include "mux/nat/forward.h"
#include "mux/overlay/answer.h"
#include "mux/overlay/echo.h"
#include "mux/overlay/maps.h"
#include "mux/overlay/parts.h"
#include "mux/overlay/header.h"
#include "mux/overlay/syn.h"
#include "mux/police.h"
#include "mux/select.h"
#include "net/vxlan.h"

/* The outer headers, up to the inner Ethernet header. */
static __always_inline enum verdict vxlan_outer(struct xdp_md *ctx, struct vxlan_ctx *v,
						struct packet *p)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct packet *o = &v->outer;
	struct vxlan_front *front;
	__u32 length, l4;

	if (parse_ethernet(data, end, o) != PARSED_OK || parse_ip(data, end, o) != PARSED_OK ||
	    o->protocol != IPPROTO_UDP)
		return VERDICT_PASS_NO_ENDPOINT;
	if (!packet_is_whole(o))
		o->limit = bpf_xdp_get_buff_len(ctx); /* a frame in several buffers */
	if (!address_is_set(&o->destination) ||
	    !address_equal(&o->destination,
			   &overlay.addresses[o->ethertype == bpf_htons(ETH_P_IPV6)]))
		return VERDICT_PASS_NO_ENDPOINT;
	l4 = o->l4;
	barrier_var(l4);
	if (l4 > EXTENSIONS_START_MAX) /* for the verifier */
		return VERDICT_DROP_VXLAN;
	front = data + l4;
	barrier_var(front); /* else it is derived again, and the verifier loses its bounds */
	if ((void *)(front + 1) > end)
		return VERDICT_DROP_VXLAN;
	if (!packet_is_whole(o))
		return VERDICT_DROP_VXLAN;
	length = bpf_ntohs(front->udp.len);
	if (!(vxlan_is_plain(&front->vxlan) || vxlan_has_route(&front->vxlan) ||
	      vxlan_is_answer(&front->vxlan)) ||
	    length < sizeof(*front) || l4 + length > o->l3 + o->l3_length)
		return VERDICT_DROP_VXLAN;
	v->routed = front->vxlan.route;
	v->vni = vni_read(front->vxlan.vni);
	p->l3 = l4 + sizeof(*front);
	p->limit = l4 + length;
	p->ethertype = front->eth.h_proto;
	return VERDICT_NONE;
}

/* Which of the network's hosts is the sender? */
static __always_inline enum verdict vxlan_sender(struct vxlan_ctx *v)
{
	struct network_address source = { .vni = v->vni, .address = v->outer.source };
	const struct overlay_vtep *vtep = bpf_map_lookup_elem(&vteps, &source);

	if (!vtep || !(vtep->roles & (OVERLAY_CLIENT | OVERLAY_BARE)))
		return VERDICT_DROP_NOT_A_VTEP;
	v->says.vni = v->vni;
	v->says.host = bpf_htonl(vtep->number);
	v->says.flags = FBT_NUMBER;
	v->agent = vtep->roles & OVERLAY_CLIENT && v->routed;
	return VERDICT_NONE;
}

/* Is it an ICMP error? */
static __always_inline bool vxlan_holds_error(struct xdp_md *ctx, const struct packet *p)
{
	__u8 type;

	return packet_is_icmp(p) && p->l4 + sizeof(struct icmp_header) <= p->l3 + p->l3_length &&
	       !bpf_xdp_load_bytes(ctx, p->l4, &type, sizeof(type)) && icmp_is_error(p, type);
}

/*
 * The flow of the packet inside: of a fragment its datagram's, of an ICMP error that of what it is
 * about. Sets also what it counts as. A function of its own, with its own stack.
 */
__noinline int vxlan_flow(struct xdp_md *ctx, struct packet *p, const struct address *service,
			  enum parsed parsed)
{
	__u32 row = 0;
	struct vxlan_ctx *v = bpf_map_lookup_elem(&vxlan_ctxs, &row);
	bool whole = parsed == PARSED_OK;
	void *data, *end;

	if (!p || !service || !v)
		return VERDICT_DROP_INNER_OTHER;
	if (!whole && parsed != PARSED_FRAGMENT)
		return VERDICT_DROP_INNER_OTHER;
	if (whole && vxlan_holds_error(ctx, p)) {
		v->forward = VERDICT_FORWARD_ICMP;
		return source_is_host(p) ? vxlan_quoted(ctx, p) : VERDICT_DROP_MARTIAN;
	}
	if (p->protocol != IPPROTO_TCP && p->protocol != IPPROTO_UDP)
		return whole ? vxlan_echo(ctx, &v->outer, p, service) : VERDICT_DROP_INNER_OTHER;
	if (!whole) {
		v->forward = VERDICT_FORWARD_FRAGMENT;
		if (p->fragment_offset) {
			v->slot = vxlan_datagram_recall(v->vni, p);
			return v->slot ? VERDICT_NONE : VERDICT_DROP_FRAGMENT_EARLY;
		}
	}
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (parse_transport_full(data, end, p) != PARSED_OK)
		return VERDICT_DROP_VXLAN;
	v->numbered = whole && p->protocol == IPPROTO_TCP;
	return VERDICT_NONE;
}

/* The packet inside, and the VIP that it is for. */
static __always_inline enum verdict vxlan_inner(struct xdp_md *ctx, struct mux_ctx *w,
						struct vxlan_ctx *v)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct packet *p = &w->packet;
	enum parsed parsed = parse_ip(data, end, p);
	struct network_address key = { .vni = v->vni };
	const struct attached_vip *vip;
	enum verdict verdict;

	if (parsed == PARSED_OTHER || parsed == PARSED_MALFORMED || !packet_is_whole(p))
		return VERDICT_DROP_VXLAN;
	key.address = p->destination;
	vip = bpf_map_lookup_elem(&network_vips, &key);
	if (!vip)
		return VERDICT_DROP_NO_ATTACHMENT;
	v->next = p->protocol;
	v->numbered = false;
	v->slot = 0;
	v->forward = VERDICT_NONE;
	if (parsed == PARSED_EXTENSIONS)
		parsed = parse_extensions_full(ctx, p);
	verdict = vxlan_flow(ctx, p, &vip->service, parsed);
	if (verdict)
		return verdict;
	w->forward = v->forward;
	if (!source_is_host(p) || address_equal(&p->source, &p->destination))
		return VERDICT_DROP_MARTIAN;
	if (vip->flags & ATTACHED_FULL_NAT || (!v->agent && vip->flags & ATTACHED_RELAY))
		v->says.flags |= FBT_VIA;
	v->attachment = vip->attachment;
	v->attached = vip->flags & (ATTACHED_NAT | ATTACHED_SESSIONS);
	if (v->attached)
		v->service = vip->service;
	w->endpoint_port = p->destination_port;
	key.address = vip->service;
	w->endpoint = endpoint_of(&key.address, p->protocol, &w->endpoint_port);
	if (!w->endpoint || w->endpoint->flags & ENDPOINT_VIP)
		return VERDICT_DROP_NO_ENDPOINT;
	w->slices = *(volatile __u64 *)&w->endpoint->slices;
	return VERDICT_NONE;
}

/*
 * The backend, by bucket alone: nothing is remembered, and timestamps have no cookies. A segment
 * can't name the previous backend of a bucket that moves, so it has to come again. A datagram may
 * not come again, and goes to the new one.
 */
static __always_inline enum verdict vxlan_choose(struct mux_ctx *w, const struct vxlan_ctx *v)
{
	bool syn = (w->packet.tcp_flags & (TCP_FLAG_SYN | TCP_FLAG_ACK)) == TCP_FLAG_SYN;
	struct choice choice;

	w->hash = flowhash_in(v->vni, &w->packet, &settings.hash_key);
	if (v->slot) {
		w->slot = v->slot;
		w->backend = backend_at(w->slices, v->slot);
		return w->backend ? VERDICT_NONE : VERDICT_DROP_NO_BACKEND;
	}
	choice = bucket_choice(w->slices, bucket_hash_in(v->vni, w));
	w->slot = choice.slot;
	w->backend = backend_at(w->slices, choice.slot);
	if (!w->backend)
		return VERDICT_DROP_NO_BACKEND;
	if (!w->forward)
		w->forward = syn ? VERDICT_FORWARD_SYN : VERDICT_FORWARD_BUCKET;
	if (w->packet.protocol == IPPROTO_TCP && !syn && choice.previous != choice.slot &&
	    backend_alive(w->slices, choice.previous))
		return VERDICT_DROP_BUCKET_MOVES;
	if (w->forward == VERDICT_FORWARD_FRAGMENT && !trace_only())
		vxlan_datagram_note(v->vni, &w->packet, w->slot, w->endpoint->vip);
	return VERDICT_NONE;
}

/* VERDICT_NONE: nat_forward() goes on. */
static __always_inline enum verdict vxlan_handle(struct xdp_md *ctx)
{
	__u32 row = 0;
	struct vxlan_ctx *v = bpf_map_lookup_elem(&vxlan_ctxs, &row);
	enum verdict verdict;
	struct mux_ctx w = {}; /* in full: the verifier follows values that are not set */

	if (!v)
		return VERDICT_PASS_NO_ENDPOINT;
	verdict = vxlan_outer(ctx, v, &w.packet);
	if (!verdict && vxlan_routes_answer(v))
		return answer_handle(ctx);
	verdict = verdict ?: vxlan_sender(v);
	verdict = verdict ?: vxlan_inner(ctx, &w, v);
	verdict = verdict ?: police(&w, false);
	if (!verdict && v->attached && nat_takes(&w, v))
		return v->numbered ? VERDICT_NONE : VERDICT_DROP_INNER_OTHER;
	verdict = verdict ?: vxlan_choose(&w, v);
	verdict = verdict ?: vxlan_handshake(ctx, &w, v);
	verdict = verdict ?: push_vxlan(ctx, &w, v);
	if (verdict)
		return verdict;
	count(&endpoint_counts, w.endpoint->id, v->outer.limit);
	count(&network_counts, v->attachment, v->outer.limit);
	return w.forward;
}

/* The same as a function of its own: mux_trace has no stack left. */
__noinline int vxlan_handled(struct xdp_md *ctx)
{
	return vxlan_handle(ctx);
}
