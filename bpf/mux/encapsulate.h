/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Sends a packet to its backend's host: in an outer IP header alone, or in GUE. */
#pragma once

#include "net/xdp/encap.h"
#include "net/flowhash.h"
#include "mux/ctx.h"

/* The outer source: the mux's address, or one of its prefix by the flow's hash. */
static __always_inline struct address outer_source(const struct mux_ctx *w, const bool v4)
{
	const struct address *spread = v4 ? &settings.spread4 : &settings.spread6;
	struct address source = v4 ? settings.source4 : settings.source6;

	if (!(settings.flags & (v4 ? SETTINGS_SPREAD4 : SETTINGS_SPREAD6)))
		return source;
	/* The upper half first: the lower chose the bucket, so one backend would see few sources.
	 */
	source.words[3] |= (__u32)(w->hash >> 32) & spread->words[3];
	source.words[2] |= (__u32)w->hash & spread->words[2];
	return source;
}

/* Bytes that stand before the packet once it is encapsulated. */
static __always_inline __u32 outer_growth(const struct mux_ctx *w, const bool v4)
{
	bool other_v4 = w->other && w->other->flags & BACKEND_V4;

	if (w->weir.version || settings.flags & SETTINGS_GUE)
		return gue_growth(&w->weir, v4, other_v4);
	return v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
}

static __always_inline bool send_gue(struct xdp_md *ctx, struct mux_ctx *w,
				     const struct outer *outer, const struct vlan_tags *vlan)
{
	const struct packet *p = &w->packet;
	struct gue_push g = {
		.vlan = *vlan,
		.source = *outer->source,
		.destination = *outer->destination,
		.hash = w->hash,
		.weir = w->weir,
		.l3_length = p->l3_length,
		.l3 = p->l3,
		.protocol = inner_protocol(p),
		.tos = p->tos,
		.v4 = w->backend->flags & BACKEND_V4,
	};

	__builtin_memcpy(g.macs, outer->macs, sizeof(g.macs));
	if (w->other) {
		g.other = w->other->tunnel;
		g.other_v4 = w->other->flags & BACKEND_V4;
	}
	return push_gue(ctx, &g);
}

/* v4, the tunnel's family, is a constant: each family is compiled on its own. */
static __always_inline enum verdict encapsulate_in(struct xdp_md *ctx, struct mux_ctx *w,
						   const bool v4)
{
	struct backend *backend = w->backend;
	bool gue = w->weir.version || settings.flags & SETTINGS_GUE;
	struct next_hop *hop = bpf_map_lookup_elem(&next_hops, &backend->next_hop);
	struct address source;
	struct outer outer = {
		.source = &source,
		.destination = &backend->tunnel,
	};
	struct vlan_tags vlan = {};
	bool sent;

	if (!backend->next_hop || !hop)
		return VERDICT_DROP_NO_NEXT_HOP;
	outer.macs = hop->macs;
	if (v4 ? !settings.source4.words[3] : !address_is_set(&settings.source6))
		return VERDICT_DROP_NO_SOURCE;
	if (w->packet.l3_length + outer_growth(w, v4) > settings.mtu)
		return VERDICT_DROP_TOO_BIG;
	if (w->packet.l3 > sizeof(struct ethhdr) && !vlan_tags_load(ctx, &vlan))
		return VERDICT_PASS_MALFORMED;
	if (!w->hash && (!v4 || gue || settings.flags & SETTINGS_SPREAD4)) /* chosen by a cookie */
		w->hash = flowhash(&w->packet, &settings.hash_key);
	source = outer_source(w, v4);

	/* From here on the packet is changed: what fails is dropped, not passed. */
	if (gue) {
		sent = send_gue(ctx, w, &outer, &vlan);
	} else if (v4) {
		sent = push_outer_v4(ctx, &w->packet, &vlan, &outer);
	} else {
		outer.label = w->hash;
		sent = push_outer_v6(ctx, &w->packet, &vlan, &outer);
	}
	return sent ? VERDICT_NONE : VERDICT_DROP_NO_HEADROOM;
}

static __always_inline enum verdict encapsulate(struct xdp_md *ctx, struct mux_ctx *w)
{
	return w->backend->flags & BACKEND_V4 ? encapsulate_in(ctx, w, true)
					      : encapsulate_in(ctx, w, false);
}
