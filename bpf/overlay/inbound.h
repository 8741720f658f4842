/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reading what comes by VXLAN for a VIP that is attached here. All else passes
 * untouched. */
#pragma once

#include "overlay/ticket.h"

/* The outer headers, up to the inner Ethernet header. */
static __noinline enum verdict inbound_outer(struct __sk_buff *skb, struct overlay_ctx *a,
					     __u32 *vni)
{
	struct vxlan_front front = {};
	struct packet outer = {};
	struct tunnel t = {};
	__u32 udp;

	a->parsed = PARSED_MALFORMED;
	if (skb->pkt_type != PACKET_HOST || frame_is_tagged(skb) ||
	    frame_parse(skb, &outer) != PARSED_OK || outer.protocol != IPPROTO_UDP)
		return VERDICT_PASS_OTHER;
	if (bpf_skb_load_bytes(skb, outer.l4, &front, sizeof(front)) ||
	    front.udp.dest != bpf_htons(VXLAN_PORT) ||
	    !(vxlan_is_plain(&front.vxlan) || vxlan_has_ticket(&front.vxlan)))
		return VERDICT_PASS_NOT_VXLAN;
	udp = bpf_ntohs(front.udp.len);
	if (udp < sizeof(front) || udp > outer.l3 + outer.l3_length - outer.l4)
		return VERDICT_PASS_NOT_VXLAN;
	if (front.eth.h_proto == bpf_htons(ETH_P_IP))
		t.protocol = IPPROTO_IPIP;
	else if (front.eth.h_proto == bpf_htons(ETH_P_IPV6))
		t.protocol = IPPROTO_IPV6;
	else
		return VERDICT_PASS_NOT_OURS;
	t.entropy = front.udp.source;
	t.header = outer.l4 - outer.l3 + sizeof(front);
	t.payload = udp - sizeof(front);
	*vni = vni_read(front.vxlan.vni);
	a->ticket = front.vxlan.route;
	__builtin_memcpy(a->client_mac, front.eth.h_source, sizeof(a->client_mac));
	__builtin_memcpy(a->inner_to, front.eth.h_dest, sizeof(a->inner_to));
	a->outer = outer;
	a->tunnel = t;
	return VERDICT_NONE;
}

/* Reads the bypass header, and what follows it. */
static __always_inline enum parsed inbound_header(struct __sk_buff *skb, struct packet *p,
						  struct bypass_header *header, enum parsed parsed)
{
	if (parsed != PARSED_OK && parsed != PARSED_FRAGMENT)
		return parsed;
	if (!bypass_header_read(skb, p, header))
		return PARSED_MALFORMED;
	if (p->ethertype == bpf_htons(ETH_P_IPV6) && protocol_is_extension(p->protocol))
		return frame_parse_extensions(skb, p);
	return parsed;
}

/*
 * Reads the transport header, and notes whether it is an ICMP error. What is no whole segment of
 * TCP comes with a header. The ports of later fragments are the header's.
 */
static __always_inline enum verdict inbound_kind(struct __sk_buff *skb, struct overlay_ctx *a,
						 struct packet *p,
						 const struct bypass_header *header,
						 enum parsed parsed)
{
	bool headed = header->length, fragment = parsed == PARSED_FRAGMENT;

	a->error = false;
	if (parsed == PARSED_MALFORMED)
		return VERDICT_DROP_INNER_MALFORMED;
	if (fragment && !headed)
		return VERDICT_DROP_INNER_FRAGMENT;
	if (parsed != PARSED_OK && !fragment)
		return VERDICT_DROP_INNER_OTHER;
	if (headed && !fragment && icmp_holds_error(skb, p)) {
		a->error = true;
		return VERDICT_NONE;
	}
	if (p->protocol != IPPROTO_TCP && (p->protocol != IPPROTO_UDP || !(headed || a->ticket)))
		return VERDICT_DROP_INNER_OTHER;
	if (fragment && p->fragment_offset)
		return VERDICT_NONE;
	if (frame_parse_transport(skb, p) != PARSED_OK)
		return VERDICT_DROP_INNER_MALFORMED;
	if (fragment)
		p->tcp_flags = 0; /* its numbers are not read */
	return VERDICT_NONE;
}

/* The connection that an ICMP error is about is the packet's. */
static __noinline enum verdict inbound_quoted(struct __sk_buff *skb, struct overlay_ctx *a)
{
	struct packet p = a->inner, quoted = {};

	if (!quote_read(skb, &p, &quoted) || !address_equal(&quoted.source, &p.destination))
		return VERDICT_DROP_INNER_OTHER;
	a->quoted = quoted;
	a->key.client = quoted.destination;
	a->key.client_port = quoted.destination_port;
	a->key.vip_port = quoted.source_port;
	a->key.udp = quoted.protocol == IPPROTO_UDP;
	overlay_key_hash(&a->key);
	return VERDICT_NONE;
}

/* The packet inside, and the attachment that it is for. */
static __noinline enum verdict inbound_inner(struct __sk_buff *skb, struct overlay_ctx *a,
					     __u32 vni)
{
	struct packet inner = {};
	enum parsed parsed = decap_parse(skb, &a->outer, &a->tunnel, &inner);
	struct network_address key = { .vni = vni, .address = inner.destination };
	const struct overlay_attachment *attachment;
	struct bypass_header header = {};
	enum verdict verdict;
	const __u32 *number;

	if (parsed == PARSED_MALFORMED)
		return VERDICT_PASS_NOT_OURS;
	number = bpf_map_lookup_elem(&network_vips, &key);
	attachment = number ? bpf_map_lookup_elem(&attachments, number) : NULL;
	if (!attachment || attachment->vni != vni) {
		a->inner = inner;
		a->parsed = parsed;
		return VERDICT_PASS_NOT_OURS;
	}
	a->attachment = *attachment;
	if (inner.protocol == BYPASS_HEADER_PROTOCOL)
		parsed = inbound_header(skb, &inner, &header, parsed);
	verdict = inbound_kind(skb, a, &inner, &header, parsed);
	if (verdict)
		return verdict;
	a->header = header;
	a->parsed = parsed;
	if (decap_is_merged(skb, &inner, &a->tunnel))
		return VERDICT_DROP_INNER_MALFORMED;
	if (decap_loses_ce(&a->outer, &inner))
		return VERDICT_DROP_ECN;
	a->inner = inner;
	a->key.client = inner.source;
	a->key.attachment = *number;
	a->key.client_port = inner.source_port;
	a->key.vip_port = inner.destination_port;
	a->key.udp = inner.protocol == IPPROTO_UDP;
	overlay_key_hash(&a->key);
	return VERDICT_NONE;
}

/* The FBT of a packet from a mux, or a bypass header that says the same: names the client's host.
 */
static __noinline enum verdict inbound_fbt(struct __sk_buff *skb, struct overlay_ctx *a)
{
	struct fbt_segment segment = {
		.outer = a->outer.destination,
		.client = a->key.client,
		.vip = a->attachment.vip,
		.client_port = a->key.client_port,
		.vip_port = a->key.vip_port,
		.seq = a->head.tcp.seq,
	};
	const struct fbt *fbt = &a->head.fbt;
	const struct fbt_key *key = &fbt_keys.rows[fbt_key_row(fbt)];
	const struct overlay_vtep *vtep;
	struct address host;

	if (!key->id)
		return VERDICT_DROP_FBT_KEY;
	if (fbt_mac(key, fbt, &segment) != fbt->mac)
		return VERDICT_DROP_FBT_FORGED;
	if (vni_read(fbt->vni) != a->attachment.vni)
		return VERDICT_DROP_FBT_VNI;
	a->via = fbt->bits & FBT_VIA;
	if (fbt->bits & FBT_NUMBER) {
		a->host = bpf_ntohl(fbt->host);
		return a->host ? VERDICT_NONE : VERDICT_DROP_FBT_HOST;
	}
	address_from_v4(&host, fbt->host);
	vtep = bpf_map_lookup_elem(&vteps, &host);
	if (!vtep || !vtep->number)
		return VERDICT_DROP_FBT_HOST;
	a->host = vtep->number;
	return VERDICT_NONE;
}

/* Reads TCP's fixed header, if it is TCP, and the FBT, or the bypass header as one. */
static __noinline enum verdict inbound_head(struct __sk_buff *skb, struct overlay_ctx *a,
					    bool *found)
{
	struct fbt_head head = {};
	__u32 l4 = a->inner.l4;
	bool headed = a->header.length;
	bool numbered = !a->key.udp && !a->error && a->parsed == PARSED_OK;

	*found = headed || (numbered && fbt_find(skb, l4, &head));
	if ((headed || !*found) && numbered &&
	    bpf_skb_load_bytes(skb, l4, &head.tcp, sizeof(head.tcp)))
		return VERDICT_DROP_INNER_MALFORMED;
	if (headed)
		bypass_header_option(&a->header, a->attachment.vni, &head.fbt);
	a->head = head;
	return VERDICT_NONE;
}

/* What goes past the muxes: a datagram has a ticket, and nothing has a header. */
static __always_inline enum verdict inbound_straight(const struct overlay_ctx *a)
{
	if (a->header.length || (a->ticket && !a->key.udp))
		return VERDICT_DROP_FBT_FORGED;
	return a->ticket ? ticket_check(a) : VERDICT_NONE;
}

/* Who sends the packet, and for which client's host. */
static __noinline enum verdict inbound_sender(struct __sk_buff *skb, struct overlay_ctx *a)
{
	struct address source = a->outer.source;
	const struct overlay_vtep *vtep = bpf_map_lookup_elem(&vteps, &source);
	enum verdict verdict;
	bool found = false;

	if (!vtep)
		return VERDICT_DROP_NOT_A_VTEP;
	verdict = inbound_head(skb, a, &found);
	if (verdict)
		return verdict;
	a->host = vtep->number;
	a->via = false;
	a->from_mux = vtep->roles & OVERLAY_MUX;
	if (!a->from_mux && !(vtep->roles & OVERLAY_CLIENT))
		return VERDICT_DROP_NOT_A_VTEP;
	if (!a->from_mux)
		return inbound_straight(a);
	if (a->ticket)
		return VERDICT_DROP_FBT_FORGED;
	if (!found)
		return VERDICT_DROP_FBT_MISSING;
	return inbound_fbt(skb, a);
}
