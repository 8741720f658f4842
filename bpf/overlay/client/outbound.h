/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From a client to a VIP that is attached to its network: in VXLAN straight to the server's host,
 * or to the muxes. All else passes untouched.
 */
#pragma once

#include "overlay/client/datagram.h"
#include "overlay/client/neighbor.h"
#include "overlay/client/toobig.h"

/* The IP packet of a client's frame, behind VLAN tags, too. */
static __always_inline enum parsed client_parse(struct __sk_buff *skb, bool tagged,
						struct packet *p)
{
	if (!tagged)
		return frame_parse(skb, p);
	frame_reach(skb, sizeof(struct ethhdr) + 2 * sizeof(struct vlan_header));
	if (parse_ethernet(frame_data(skb), frame_end(skb), p) != PARSED_OK)
		return PARSED_MALFORMED;
	p->limit = skb->len;
	return frame_parse_ip(skb, p);
}

/* Is it from the port's own address, by its own MAC? What says so is user space's, not the frame's.
 */
static __noinline bool client_is_genuine(struct __sk_buff *skb, const struct overlay_ctx *a)
{
	struct network_address key = { .vni = a->path.vni, .address = a->inner.source };
	const struct overlay_port_address *own = bpf_map_lookup_elem(&port_addresses, &key);
	const __u8 *mac = a->path.from_mac;

	return own && own->ifindex == skb->ifindex && !__builtin_memcmp(own->mac, mac, 4) &&
	       !__builtin_memcmp(own->mac + 4, mac + 4, 2);
}

/* The client's packet, and the attachment that it is for. */
static __noinline enum verdict client_outbound_parse(struct __sk_buff *skb, struct overlay_ctx *a)
{
	bool tagged = frame_is_tagged(skb);
	struct packet p = {};
	struct network_address key = { .vni = a->path.vni };
	const struct overlay_attachment *attachment;
	const __u32 *number;
	struct ethhdr eth;

	a->parsed = client_parse(skb, tagged, &p);
	if (a->parsed == PARSED_MALFORMED || bpf_skb_load_bytes(skb, 0, &eth, sizeof(eth)))
		return VERDICT_PASS_OTHER;
	key.address = p.destination;
	number = bpf_map_lookup_elem(&network_vips, &key);
	attachment = number ? bpf_map_lookup_elem(&attachments, number) : NULL;
	if (!attachment || attachment->vni != a->path.vni)
		return VERDICT_PASS_NOT_A_VIP;
	if (tagged)
		return VERDICT_DROP_TAGGED;
	a->inner = p;
	a->attachment = *attachment;
	__builtin_memcpy(a->path.to_mac, eth.h_dest, sizeof(eth.h_dest));
	__builtin_memcpy(a->path.from_mac, eth.h_source, sizeof(eth.h_source));
	a->key.client = p.source;
	a->key.attachment = *number;
	return client_is_genuine(skb, a) ? VERDICT_NONE : VERDICT_DROP_SPOOFED;
}

/* The transport header of what is TCP; all else has no flow. */
static __noinline enum verdict client_outbound_tcp(struct __sk_buff *skb, struct overlay_ctx *a,
						   bool *tcp)
{
	struct packet p = a->inner;
	struct tcphdr head;

	*tcp = a->parsed == PARSED_OK && p.protocol == IPPROTO_TCP;
	if (!*tcp)
		return VERDICT_NONE;
	if (frame_parse_transport(skb, &p) != PARSED_OK ||
	    bpf_skb_load_bytes(skb, p.l4, &head, sizeof(head)))
		return VERDICT_DROP_INNER_MALFORMED;
	a->inner = p;
	a->head.tcp = head;
	a->key.client_port = p.source_port;
	a->key.vip_port = p.destination_port;
	return VERDICT_NONE;
}

/* To the muxes, over the family that both have. */
static __always_inline bool path_to_mux(struct overlay_ctx *a)
{
	bool v4 = address_is_set(&settings.mux4) && address_is_set(&settings.own4);

	a->path.to = v4 ? settings.mux4 : settings.mux6;
	a->path.from = v4 ? settings.own4 : settings.own6;
	a->path.route = true;
	a->path.answer_to = 0;
	a->path.ticket = 0;
	return address_is_set(&a->path.to) && address_is_set(&a->path.from);
}

/* To a server's host, from the address that it knows this one by. */
static __always_inline bool path_to_server(struct overlay_ctx *a)
{
	a->path.from = address_is_v4(&a->path.to) ? settings.own4 : settings.own6;
	a->path.route = false;
	a->path.answer_to = 0;
	a->path.ticket = 0;
	return address_is_set(&a->path.from);
}

static __noinline enum verdict client_outbound_send(struct __sk_buff *skb, struct overlay_ctx *a,
						    bool direct)
{
	bool udp = a->inner.protocol == IPPROTO_UDP;
	struct bypass_traffic *t = flow_traffic(a);
	struct counter *c;

	if (!(direct ? path_to_server(a) : path_to_mux(a)))
		return VERDICT_DROP_NO_MUX;
	a->room = client_room(a);
	if (is_too_big(skb, a))
		return answer_too_big(skb, a);
	overlay_key_hash(&a->key);
	if (t) {
		c = direct ? &t->direct : &t->by_mux;
		c->packets += skb->gso_segs ?: 1;
		c->bytes += skb->len;
	}

	if (udp)
		datagram_mark(a, direct);

	/* From here on the packet is touched: fail closed. */
	if (overlay_clamp(skb, &a->inner, overlay_overhead(&a->path.to)))
		return VERDICT_DROP_REWRITE;
	return encapsulate_for(skb, a, direct ? VERDICT_SEND_DIRECT : VERDICT_SEND_MUX,
			       VERDICT_SEND_LOCAL);
}

static __always_inline enum verdict client_outbound(struct __sk_buff *skb, struct overlay_ctx *a)
{
	__u32 ifindex = skb->ifindex;
	const struct overlay_port *port = bpf_map_lookup_elem(&ports, &ifindex);
	enum verdict verdict;
	bool tcp = false, direct;

	if (!port)
		return VERDICT_PASS_OTHER;
	a->path.vni = port->vni;
	a->key.client_port = a->key.vip_port = 0;
	a->ifindex = ifindex;
	if (skb->protocol == bpf_htons(ETH_P_ARP))
		return answer_arp(skb, a);
	verdict = skb->protocol == bpf_htons(ETH_P_IPV6) ? answer_nd(skb, a) : VERDICT_NONE;
	verdict = verdict ?: client_outbound_parse(skb, a);
	verdict = verdict ?: client_outbound_tcp(skb, a, &tcp);
	if (verdict)
		return verdict;
	a->asks = false;
	if (tcp)
		direct = flow_note_client(a);
	else
		direct = a->parsed == PARSED_OK && a->inner.protocol == IPPROTO_UDP &&
			 datagram_note_client(skb, a);
	return client_outbound_send(skb, a, direct);
}
