/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reading the headers of a socket buffer, whose first bytes alone may be at hand.
 *
 * Give no helper the address of a packet's member, but that of a copy: then the compiler keeps
 * the packet in registers, whose bounds the verifier follows.
 */
#pragma once

#include "net/packet.h"

/* Behind Ethernet and one, or two, IPv6 headers with all extension headers that we follow. */
#define FRAME_L3_MAX (14 + 40 + EXTENSIONS_BYTES)
#define FRAME_L4_MAX (FRAME_L3_MAX + 40 + EXTENSIONS_BYTES)

static __always_inline void *frame_data(struct __sk_buff *skb)
{
	return (void *)(long)skb->data;
}

static __always_inline void *frame_end(struct __sk_buff *skb)
{
	return (void *)(long)skb->data_end;
}

/*
 * Brings the first bytes within reach, if they lie elsewhere: mostly they do not, and what the
 * host sends should not be copied only to be looked at.
 */
static __always_inline void frame_reach(struct __sk_buff *skb, __u32 bytes)
{
	if (frame_data(skb) + bytes > frame_end(skb))
		bpf_skb_pull_data(skb, bytes);
}

/* The kernel takes the outermost tag off the frame; one that is left is an inner tag. */
static __always_inline bool frame_is_tagged(struct __sk_buff *skb)
{
	return skb->vlan_present || ethertype_is_vlan(skb->protocol);
}

/* What follows an IPv6 header that is not the transport's. Rare, so pulling more does not hurt. */
static __always_inline enum parsed frame_parse_extensions(struct __sk_buff *skb, struct packet *p)
{
	__u32 reach = p->l4 + EXTENSIONS_BYTES;

	frame_reach(skb, reach < skb->len ? reach : skb->len);
	return parse_extensions(frame_data(skb), frame_end(skb), p);
}

/* The IP header at p->l3, of p->ethertype. */
static __always_inline enum parsed frame_parse_ip(struct __sk_buff *skb, struct packet *p)
{
	enum parsed parsed;
	__u32 l3 = p->l3;

	barrier_var(l3); /* what the compiler knows of it, the verifier has forgotten */
	if (l3 > FRAME_L3_MAX)
		return PARSED_MALFORMED;
	p->l3 = l3;
	frame_reach(skb, l3 + (p->ethertype == bpf_htons(ETH_P_IP) ? sizeof(struct iphdr)
								   : sizeof(struct ipv6hdr)));
	parsed = parse_ip(frame_data(skb), frame_end(skb), p);
	if (parsed != PARSED_MALFORMED && parsed != PARSED_OTHER && !packet_is_whole(p))
		return PARSED_MALFORMED;
	return parsed == PARSED_EXTENSIONS ? frame_parse_extensions(skb, p) : parsed;
}

/* Ethernet without tags and the IP header behind it. */
static __always_inline enum parsed frame_parse(struct __sk_buff *skb, struct packet *p)
{
	p->l3 = sizeof(struct ethhdr);
	p->limit = skb->len;
	p->ethertype = skb->protocol;
	return frame_parse_ip(skb, p);
}

/* The TCP or UDP header behind an IP header that parsed. */
static __always_inline enum parsed frame_parse_transport(struct __sk_buff *skb, struct packet *p)
{
	__u32 l4 = p->l4;

	barrier_var(l4);
	if (l4 > FRAME_L4_MAX)
		return PARSED_MALFORMED;
	p->l4 = l4;
	frame_reach(skb, l4 + (p->protocol == IPPROTO_TCP ? sizeof(struct tcphdr)
							  : sizeof(struct udphdr)));
	return parse_transport(frame_data(skb), frame_end(skb), p);
}
