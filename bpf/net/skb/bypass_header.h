/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reading and removing the bypass header of a socket buffer. */
#pragma once

#include "net/bypass_header.h"
#include "net/skb/fbt.h"

/* Reads the header that stands at p->l4; p tells what follows it. False: it is none of ours. */
static __always_inline bool bypass_header_read(struct __sk_buff *skb, struct packet *p,
					       struct bypass_header *h)
{
	__u32 l4 = p->l4;

	if (p->ethertype == bpf_htons(ETH_P_IPV6) && l4 - p->l3 != sizeof(struct ipv6hdr))
		return false; /* muxes put it in front of extension headers */
	if (p->l4 + sizeof(*h) > p->l3 + p->l3_length || bpf_skb_load_bytes(skb, l4, h, sizeof(*h)))
		return false;
	if (h->length != BYPASS_HEADER_WORDS || h->reserved ||
	    (h->bits & FBT_VERSION_MASK) != FBT_VERSION)
		return false;
	p->protocol = h->next;
	p->l4 += sizeof(*h);
	p->source_port = h->client_port;
	p->destination_port = h->vip_port;
	return true;
}

/*
 * Removes the header from the outermost packet, whose IP header without options it follows; that
 * then says the protocol. No checksum but the IP header's covers it. p's lengths follow.
 */
static __noinline int bypass_header_strip(struct __sk_buff *skb, struct packet *p, __u8 protocol)
{
	__u32 l3 = p->l3, length = p->l3_length - sizeof(struct bypass_header);
	bool v4 = p->ethertype == bpf_htons(ETH_P_IP);
	struct iphdr *ip;

	if (v4 && p->l4 - l3 != sizeof(struct bypass_header) + sizeof(struct iphdr))
		return -1;
	if (bpf_skb_adjust_room(skb, -(__s32)sizeof(struct bypass_header), BPF_ADJ_ROOM_NET,
				BPF_F_ADJ_ROOM_FIXED_GSO))
		return -1;
	p->l4 -= sizeof(struct bypass_header);
	p->limit -= sizeof(struct bypass_header);
	p->l3_length = length;
	frame_reach(skb, l3 + (v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr)));
	if (!v4)
		return bpf_skb_store_bytes(skb, l3 + offsetof(struct ipv6hdr, nexthdr), &protocol,
					   sizeof(protocol), BPF_F_RECOMPUTE_CSUM) ||
		       fbt_set_length(skb, p, length);
	ip = frame_at(skb, l3, sizeof(*ip));
	if (!ip)
		return -1;
	ip->check = header_checksum(ip->check, bpf_htons(ip->ttl << 8 | ip->protocol),
				    bpf_htons(ip->ttl << 8 | protocol));
	ip->protocol = protocol;
	return fbt_set_length(skb, p, length);
}
