/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Fragments of a virtual network's clients, and ICMP errors about what servers have sent them. All
 * fragments of a datagram come to one mux, for hosts take the UDP source port of what they have no
 * ports of from the addresses: nothing is relayed, and a fragment before its first one is dropped.
 */
#pragma once

#include "mux/overlay/push.h"
#include "mux/slowpath/fragment.h"
#include "net/quote.h"

/* The hash of what all fragments of a datagram have in common, in a network. */
static __always_inline __u64 vxlan_datagram_hash(__u32 vni, const struct packet *p)
{
	struct packet common = {
		.source = p->source,
		.destination = p->destination,
		.protocol = p->protocol,
		.source_port = p->fragment_id,
		.destination_port = p->fragment_id >> 16,
	};

	return flowhash_in(vni, &common, &settings.hash_key);
}

/* Remembers the ports and the slot of a first fragment, for those that follow. */
__noinline int vxlan_datagram_note(__u32 vni, const struct packet *p, __u32 slot, __u32 vip)
{
	struct fragment_value value = { .slot = slot };
	struct datagram d = {};

	if (!p)
		return 0;
	value.source_port = p->source_port;
	value.destination_port = p->destination_port;
	d.hash = vxlan_datagram_hash(vni, p);
	__builtin_memcpy(&d.words[0], &value, sizeof(value));
	d.owner = fragment_tenant(vip);
	return datagram_note(fragment_set(d.hash), &d);
}

/* Gives a later fragment the ports of its first one. Returns the slot; 0: it did not come. */
__noinline int vxlan_datagram_recall(__u32 vni, struct packet *p)
{
	struct fragment_value value;
	struct datagram d = {};

	if (!p)
		return 0;
	d.hash = vxlan_datagram_hash(vni, p);
	if (!fragment_recall(&d))
		return 0;
	__builtin_memcpy(&value, &d.words[0], sizeof(value));
	p->source_port = value.source_port;
	p->destination_port = value.destination_port;
	p->tcp_flags = 0;
	return value.slot;
}

/*
 * Of an ICMP error that is for a VIP: p becomes what the client has sent of the connection that it
 * is about, but for its place in the frame. VERDICT_NONE if it is about one.
 */
__noinline int vxlan_quoted(struct xdp_md *ctx, struct packet *p)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 row = 0;
	struct vxlan_ctx *v = bpf_map_lookup_elem(&vxlan_ctxs, &row);
	struct icmp_header *icmp;
	struct packet *quoted;

	if (!p || !v)
		return VERDICT_DROP_INNER_OTHER;
	quoted = &v->quoted;
	icmp = icmp_header(data, end, p);
	if (!icmp || !icmp_is_error(p, icmp->type) ||
	    quote_parse(data, end, p, quoted) != PARSED_OK || packet_is_icmp(quoted) ||
	    !address_equal(&quoted->source, &p->destination))
		return VERDICT_DROP_INNER_OTHER;
	p->source = quoted->destination;
	p->source_port = quoted->destination_port;
	p->destination_port = quoted->source_port;
	p->protocol = quoted->protocol;
	p->tcp_flags = 0;
	return VERDICT_NONE;
}
