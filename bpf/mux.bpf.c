// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The mux: takes packets for VIPs and sends each, encapsulated, to the host of a backend
 * (Ananta, section 3.3). docs/design/mux.md has the picture of the tables.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "lib/encap.h"
#include "lib/mux_endpoint.h"
#include "lib/mux_finish.h"
#include "lib/flowhash.h"
#include "lib/mux_flow.h"
#include "lib/mux_tables.h"
#include "lib/packet.h"

/* What the steps find out about a packet. */
struct work {
	struct packet packet;
	struct endpoint *endpoint;
	struct backend *backend;
	__u64 slices; /* of the endpoint, loaded once */
	__u64 hash;
	enum verdict forward; /* what the packet counts as when it gets out */
};

/* Each step returns VERDICT_NONE when the next one shall go on. */

static __always_inline enum verdict parse(struct xdp_md *ctx, struct packet *p)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	enum parsed parsed = parse_ethernet(data, end, p);

	if (parsed == PARSED_OK) {
		parsed = parse_ip(data, end, p);
		if (parsed == PARSED_OTHER)
			return VERDICT_PASS_NOT_IP;
		if (parsed != PARSED_MALFORMED && !packet_is_whole(p))
			return VERDICT_PASS_MALFORMED;
		if (parsed == PARSED_EXTENSIONS)
			parsed = parse_extensions(data, end, p);
	}
	if (parsed == PARSED_OK)
		parsed = parse_transport(data, end, p);
	switch (parsed) {
	case PARSED_OK:
		return VERDICT_NONE;
	case PARSED_FRAGMENT:
		return VERDICT_PASS_FRAGMENT;
	case PARSED_MALFORMED:
		return VERDICT_PASS_MALFORMED;
	case PARSED_EXTENSIONS:
	case PARSED_OTHER:
		break;
	}
	if (p->protocol == IPPROTO_ICMP || p->protocol == IPPROTO_ICMPV6)
		return VERDICT_PASS_ICMP;
	return VERDICT_PASS_OTHER_PROTOCOL;
}

static __always_inline enum verdict classify(struct work *w)
{
	w->endpoint = endpoint_of(&w->packet);
	if (!w->endpoint)
		return VERDICT_PASS_NOT_FOR_US;
	w->slices = *(volatile __u64 *)&w->endpoint->slices;
	w->hash = flowhash(&w->packet, &pool.hash_key);
	return VERDICT_NONE;
}

static __always_inline enum verdict choose_by_bucket(struct work *w, __u32 *slot)
{
	*slot = bucket_slot(w->slices, w->hash);
	w->backend = backend_at(w->slices, *slot);
	return w->backend ? VERDICT_NONE : VERDICT_DROP_NO_BACKEND;
}

/*
 * A new connection goes where its bucket says, and what was remembered of its five-tuple is
 * forgotten. Nothing is remembered yet: a flood of SYNs evicts nobody. All else goes where it went
 * before, unless that backend is down.
 */
static __always_inline enum verdict choose(struct work *w)
{
	struct flow_set *set = flow_set_of(w->hash);
	__u64 tag = flow_tag(w->hash, w->endpoint->salt);
	enum verdict verdict;
	__u32 slot;

	if (!set) /* can't be: the mask keeps the row within the map */
		return VERDICT_DROP_NO_BACKEND;
	if ((w->packet.tcp_flags & (TCP_FLAG_SYN | TCP_FLAG_ACK)) == TCP_FLAG_SYN) {
		if (w->endpoint->flags & ENDPOINT_MOVED)
			flow_forget(set, tag);
		w->forward = VERDICT_FORWARD_SYN;
		return choose_by_bucket(w, &slot);
	}
	w->forward = VERDICT_FORWARD_BUCKET;
	slot = flow_recall(set, tag);
	if (slot) {
		w->backend = backend_at(w->slices, slot);
		w->forward = VERDICT_FORWARD_FLOW;
		if (w->backend && !(w->backend->flags & BACKEND_DOWN))
			return VERDICT_NONE;
		w->forward = VERDICT_FORWARD_REPLACED;
	}
	verdict = choose_by_bucket(w, &slot);
	if (!verdict)
		flow_remember(set, tag, slot);
	return verdict;
}

static __always_inline enum verdict encapsulate(struct xdp_md *ctx, struct work *w)
{
	struct backend *backend = w->backend;
	bool v4 = backend->flags & BACKEND_V4;
	__u32 growth = v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	struct outer outer = {
		.hop = bpf_map_lookup_elem(&next_hops, &backend->next_hop),
		.source = v4 ? &pool.source4 : &pool.source6,
		.destination = &backend->tunnel,
		.label = w->hash,
	};
	struct vlan_tags vlan;

	if (!backend->next_hop || !outer.hop)
		return VERDICT_DROP_NO_NEXT_HOP;
	if (!address_is_set(outer.source))
		return VERDICT_DROP_NO_SOURCE;
	if (w->packet.l3_length + growth > pool.mtu)
		return VERDICT_DROP_TOO_BIG;
	if (!vlan_tags_load(ctx, &vlan))
		return VERDICT_PASS_MALFORMED;

	/* From here on the packet is changed: what fails is dropped, not passed. */
	if (v4 ? push_outer_v4(ctx, &w->packet, &vlan, &outer)
	       : push_outer_v6(ctx, &w->packet, &vlan, &outer))
		return VERDICT_NONE;
	return VERDICT_DROP_NO_HEADROOM;
}

static __always_inline enum verdict handle(struct xdp_md *ctx, struct work *w)
{
	enum verdict verdict = parse(ctx, &w->packet);

	if (!verdict)
		verdict = classify(w);
	if (!verdict)
		verdict = choose(w);
	if (!verdict)
		verdict = encapsulate(ctx, w);
	if (verdict)
		return verdict;
	count(&endpoint_counters, w->endpoint->id, w->packet.limit);
	return w->forward;
}

static __always_inline enum xdp_action mux_main(struct xdp_md *ctx)
{
	struct work w;

	w.packet.limit = ctx->data_end - ctx->data;
	return finish(handle(ctx, &w), w.packet.limit);
}

SEC("xdp")
int mux(struct xdp_md *ctx)
{
	return mux_main(ctx);
}

char _license[] SEC("license") = "Dual BSD/GPL";
