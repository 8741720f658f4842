/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From a VIP to a client: out of VXLAN, to the client's interface. */
#pragma once

#include "overlay/client/datagram.h"

/* The client, and the attachment that the packet is of. Is it none of these, another overlay has
 * it. */
static __noinline enum verdict client_inbound_ends(struct overlay_ctx *a, __u32 vni)
{
	struct network_address key = { .vni = vni, .address = a->inner.destination };
	const struct overlay_port_address *client = bpf_map_lookup_elem(&port_addresses, &key);
	const struct overlay_attachment *attachment;
	const __u32 *number;

	if (!client)
		return VERDICT_PASS_NOT_OURS;
	key.address = a->inner.source;
	number = bpf_map_lookup_elem(&network_vips, &key);
	attachment = number ? bpf_map_lookup_elem(&attachments, number) : NULL;
	if (!attachment || attachment->vni != vni)
		return VERDICT_PASS_NOT_OURS;
	a->ifindex = client->ifindex;
	__builtin_memcpy(a->path.to_mac, client->mac, sizeof(a->path.to_mac));
	__builtin_memcpy(a->path.from_mac, attachment->gateway_mac, sizeof(a->path.from_mac));
	a->key.client = a->inner.destination;
	a->key.attachment = *number;
	return VERDICT_NONE;
}

/* Is it the address that all muxes have? */
static __always_inline bool address_is_all_muxes(const struct address *a)
{
	return address_is_set(a) &&
	       (address_equal(a, &settings.mux4) || address_equal(a, &settings.mux6));
}

/* Who sends it: a mux, by its own address or by that of all of them, or a host with servers. */
static __noinline enum verdict client_inbound_sender(struct overlay_ctx *a)
{
	struct address source = a->outer.source;
	const struct overlay_vtep *vtep = bpf_map_lookup_elem(&vteps, &source);
	__u32 roles = vtep ? vtep->roles : 0;

	if (address_is_all_muxes(&source))
		roles |= OVERLAY_MUX;
	if (!(roles & (OVERLAY_MUX | OVERLAY_SERVER)))
		return VERDICT_DROP_NOT_A_VTEP;
	a->from_mux = roles & OVERLAY_MUX;
	return decap_loses_ce(&a->outer, &a->inner) ? VERDICT_DROP_ECN : VERDICT_NONE;
}

static __noinline enum verdict client_inbound_tcp(struct __sk_buff *skb, struct overlay_ctx *a)
{
	struct packet p = a->inner;
	struct tcphdr head;

	if (frame_parse_transport(skb, &p) != PARSED_OK ||
	    bpf_skb_load_bytes(skb, p.l4, &head, sizeof(head)))
		return VERDICT_DROP_INNER_MALFORMED;
	a->head.tcp = head;
	a->key.client_port = p.destination_port;
	a->key.vip_port = p.source_port;
	return flow_note_answer(a);
}

static __noinline enum verdict client_inbound_deliver(struct __sk_buff *skb, struct overlay_ctx *a)
{
	struct bypass_traffic *t = flow_traffic(a);
	struct packet p = a->inner;
	__u8 macs[12];

	if (t) {
		t->in.packets += skb->gso_segs ?: 1;
		t->in.bytes += skb->len;
	}
	__builtin_memcpy(macs, a->path.to_mac, 6);
	__builtin_memcpy(macs + 6, a->path.from_mac, 6);

	/* From here on the packet is touched: fail closed. */
	if (decap(skb, &a->outer, &a->tunnel, &p) ||
	    bpf_skb_store_bytes(skb, 0, macs, sizeof(macs), 0))
		return VERDICT_DROP_REWRITE;
	return VERDICT_DELIVER_CLIENT;
}

/* What inbound_inner() has found to be for no VIP here. */
static __always_inline enum verdict client_inbound(struct __sk_buff *skb, struct overlay_ctx *a,
						   __u32 vni)
{
	enum verdict verdict;

	if (a->parsed == PARSED_MALFORMED)
		return VERDICT_PASS_NOT_OURS;
	verdict = client_inbound_ends(a, vni);
	verdict = verdict ?: client_inbound_sender(a);
	if (verdict)
		return verdict;
	if (decap_is_merged(skb, &a->inner, &a->tunnel))
		return VERDICT_DROP_INNER_MALFORMED;
	if (a->parsed == PARSED_OK && a->inner.protocol == IPPROTO_TCP)
		verdict = client_inbound_tcp(skb, a);
	else if (a->parsed == PARSED_OK && a->inner.protocol == IPPROTO_UDP && !a->from_mux)
		datagram_note_answer(skb, a);
	return verdict ?: client_inbound_deliver(skb, a);
}
