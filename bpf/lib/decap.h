/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Removing the outer header of IP-in-IP, in all four combinations of families. */
#pragma once

#include "lib/frame.h"

/* The two bits of ECN (RFC 3168). */
enum ecn {
	ECN_NOT_ECT = 0,
	ECN_ECT1 = 1,
	ECN_ECT0 = 2,
	ECN_CE = 3,
	ECN_MASK = 3,
};

/* The packet inside outer. It may not reach beyond what carries it. */
static __always_inline enum parsed decap_parse(struct __sk_buff *skb, const struct packet *outer,
					       struct packet *inner)
{
	enum parsed parsed;

	inner->l3 = outer->l4;
	inner->limit = outer->l3 + outer->l3_length;
	inner->ethertype =
		outer->protocol == IPPROTO_IPIP ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
	parsed = frame_parse_ip(skb, inner);
	return parsed == PARSED_OK ? frame_parse_transport(skb, inner) : parsed;
}

/* Congestion that the outer header met, and the inner can't tell (RFC 6040, figure 4). */
static __always_inline bool decap_loses_ce(const struct packet *outer, const struct packet *inner)
{
	return (outer->tos & ECN_MASK) == ECN_CE && (inner->tos & ECN_MASK) == ECN_NOT_ECT;
}

static __always_inline __u8 decap_ecn(__u8 outer, __u8 inner)
{
	if (outer == ECN_CE)
		return ECN_CE;
	if (outer == ECN_ECT1 && inner == ECN_ECT0)
		return ECN_ECT1;
	return inner;
}

static __always_inline int decap_set_tos(struct __sk_buff *skb, struct packet *p, __u8 tos)
{
	__u32 at = p->l3 + 1;
	__u8 byte;
	int err;

	if (p->ethertype == bpf_htons(ETH_P_IP)) {
		err = bpf_l3_csum_replace(skb, p->l3 + 10, bpf_htons(p->tos), bpf_htons(tos), 2);
		return err ?: bpf_skb_store_bytes(skb, at, &tos, 1, 0);
	}
	/* IPv6: the low half of the class is the high half of the second byte. */
	err = bpf_skb_load_bytes(skb, at, &byte, 1);
	byte = (byte & 0x0f) | tos << 4;
	return err ?: bpf_skb_store_bytes(skb, at, &byte, 1, BPF_F_RECOMPUTE_CSUM);
}

/*
 * Removes the outer header; inner's offsets follow. A buffer that GRO or TSO made of many
 * segments keeps their size: they are as large as before, only their number of headers is less.
 */
static __always_inline int decap(struct __sk_buff *skb, const struct packet *outer,
				 struct packet *inner)
{
	__u16 header = outer->l4 - outer->l3;
	__u8 tos =
		(inner->tos & ~ECN_MASK) | decap_ecn(outer->tos & ECN_MASK, inner->tos & ECN_MASK);
	__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO;
	__be16 ethertype = inner->ethertype;
	int err;

	flags |= ethertype == bpf_htons(ETH_P_IP) ? BPF_F_ADJ_ROOM_DECAP_L3_IPV4
						  : BPF_F_ADJ_ROOM_DECAP_L3_IPV6;
	err = bpf_skb_adjust_room(skb, -(__s32)header, BPF_ADJ_ROOM_MAC, flags);
	if (err)
		return err;
	inner->l3 -= header;
	inner->l4 -= header;
	inner->limit -= header;
	if (ethertype != outer->ethertype) {
		err = bpf_skb_store_bytes(skb, offsetof(struct ethhdr, h_proto), &ethertype,
					  sizeof(ethertype), 0);
		if (err)
			return err;
	}
	return tos == inner->tos ? 0 : decap_set_tos(skb, inner, tos);
}
