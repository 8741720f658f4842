/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reading the headers of a socket buffer, whose first bytes alone may be at hand. */
#pragma once

#include "packet.h"

/* Ethernet, two IPv4 headers with all options, and TCP's fixed part. */
#define FRAME_HEADERS_MAX (14 + 60 + 60 + 20)

static __always_inline void *frame_data(struct __sk_buff *skb)
{
	return (void *)(long)skb->data;
}

static __always_inline void *frame_end(struct __sk_buff *skb)
{
	return (void *)(long)skb->data_end;
}

/* The kernel takes the outermost tag off the frame; one that is left is an inner tag. */
static __always_inline bool frame_is_tagged(struct __sk_buff *skb)
{
	return skb->vlan_present || ethertype_is_vlan(skb->protocol);
}

/* Ethernet without tags and the IP header behind it. */
static __always_inline enum parsed frame_parse(struct __sk_buff *skb, struct packet *p)
{
	__u32 headers = skb->len < FRAME_HEADERS_MAX ? skb->len : FRAME_HEADERS_MAX;

	if (skb->data_end - skb->data < headers)
		bpf_skb_pull_data(skb, headers);
	if (frame_data(skb) + sizeof(struct ethhdr) > frame_end(skb))
		return PARSED_MALFORMED;
	p->l3 = sizeof(struct ethhdr);
	p->limit = skb->len;
	p->ethertype = skb->protocol;
	return parse_ip(frame_data(skb), frame_end(skb), p);
}
