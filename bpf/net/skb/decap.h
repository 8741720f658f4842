/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What carries a packet: IP-in-IP or GUE, in all four combinations of families. Reading and
 * removing it.
 */
#pragma once

#include "abi/shared/gue.h"
#include "net/skb/frame.h"

/* The two bits of ECN (RFC 3168). */
enum ecn {
	ECN_NOT_ECT = 0,
	ECN_ECT1 = 1,
	ECN_ECT0 = 2,
	ECN_CE = 3,
	ECN_MASK = 3,
};

/* hlen of GUE with struct gue_weir and another backend's tunnel. */
enum {
	GUE_OTHER_V4_WORDS = GUE_WEIR_WORDS + 1,
	GUE_OTHER_V6_WORDS = GUE_WEIR_WORDS + 4,
};

/* How a packet for us came, and what GUE says of it. */
struct tunnel {
	struct address other; /* another backend's, if step is not GUE_CHAIN_NONE */
	__u16 header; /* bytes from the outer IP header to the inner one */
	__u16 payload; /* bytes behind it, as the outer headers say */
	__be16 entropy; /* UDP source port; 0: IP-in-IP */
	__be16 source_port; /* of a fragment's datagram */
	__be16 destination_port;
	__u8 protocol; /* IPPROTO_IPIP or IPPROTO_IPV6 */
	enum gue_chain step;
	enum gue_kind kind;
	bool says_weir; /* GUE with private data */
};

/* What reading GUE comes to. */
enum gue_status {
	GUE_OK,
	GUE_MALFORMED,
	GUE_UNKNOWN,
};

/* UDP and what of GUE every packet has. */
struct gue_front {
	struct udphdr udp;
	struct gue gue;
};

/* What only some have; of another tunnel that is IPv4 the first word alone. */
struct gue_rest {
	struct gue_weir weir;
	__u32 other[4];
};

static __always_inline bool protocol_is_ip(__u8 protocol)
{
	return protocol == IPPROTO_IPIP || protocol == IPPROTO_IPV6;
}

/* The packet inside is of the EtherType; false: that is not IP. */
static __always_inline bool tunnel_carries(struct tunnel *t, __be16 ethertype)
{
	t->protocol = ethertype == bpf_htons(ETH_P_IP) ? IPPROTO_IPIP : IPPROTO_IPV6;
	return ethertype == bpf_htons(ETH_P_IP) || ethertype == bpf_htons(ETH_P_IPV6);
}

/* Is what Weir says of the packet for hosts? */
static __always_inline bool gue_knows(const struct gue_weir *weir)
{
	if (weir->version != GUE_WEIR_VERSION || weir->step > GUE_CHAIN_HOLDER)
		return false;
	switch ((enum gue_kind)weir->kind) {
	case GUE_KIND_PACKET:
	case GUE_KIND_FRAGMENT:
	case GUE_KIND_STEERED:
	case GUE_KIND_TOKEN:
	case GUE_KIND_JOINED:
		return true;
	case GUE_KIND_RELAY: /* for muxes */
		return false;
	}
	return false;
}

static __always_inline enum gue_status gue_read_rest(struct __sk_buff *skb, __u32 at, __u32 words,
						     struct tunnel *t)
{
	__u32 bytes = words == GUE_WEIR_WORDS	    ? sizeof(struct gue_weir)
		      : words == GUE_OTHER_V4_WORDS ? sizeof(struct gue_weir) + sizeof(__u32)
						    : sizeof(struct gue_rest);
	struct gue_rest rest = {};

	if (words != GUE_WEIR_WORDS && words != GUE_OTHER_V4_WORDS && words != GUE_OTHER_V6_WORDS)
		return GUE_MALFORMED;
	if (bpf_skb_load_bytes(skb, at, &rest, bytes))
		return GUE_MALFORMED;
	if (!gue_knows(&rest.weir))
		return GUE_UNKNOWN;
	if (rest.weir.step != GUE_CHAIN_NONE && words == GUE_WEIR_WORDS)
		return GUE_MALFORMED;
	t->step = rest.weir.step;
	t->kind = rest.weir.kind;
	t->source_port = rest.weir.source_port;
	t->destination_port = rest.weir.destination_port;
	if (words == GUE_OTHER_V4_WORDS)
		address_from_v4(&t->other, rest.other[0]);
	else
		__builtin_memcpy(&t->other, rest.other, sizeof(t->other));
	if (words == GUE_OTHER_V6_WORDS && address_is_v4(&t->other))
		return GUE_MALFORMED; /* has a spelling of its own */
	return GUE_OK;
}

/*
 * GUE behind UDP. The UDP checksum is not looked at: muxes send none (RFC 6935), and what is
 * inside has its own.
 */
static __always_inline enum gue_status gue_read(struct __sk_buff *skb, const struct packet *outer,
						const struct gue_front *front, struct tunnel *t)
{
	__u32 udp = bpf_ntohs(front->udp.len), room = outer->l3 + outer->l3_length - outer->l4;
	__u32 words = front->gue.head & GUE_HLEN_MASK;
	__u32 bytes = sizeof(*front) + words * sizeof(__u32);

	if (front->gue.head & ~GUE_HLEN_MASK || front->gue.flags ||
	    !protocol_is_ip(front->gue.protocol))
		return GUE_UNKNOWN;
	if (udp > room || udp < bytes)
		return GUE_MALFORMED;
	t->entropy = front->udp.source;
	t->header = outer->l4 - outer->l3 + bytes;
	t->payload = udp - bytes;
	t->protocol = front->gue.protocol;
	t->says_weir = words;
	return words ? gue_read_rest(skb, outer->l4 + sizeof(*front), words, t) : GUE_OK;
}

/* The packet inside. It may not reach beyond what carries it. */
static __always_inline enum parsed decap_parse(struct __sk_buff *skb, const struct packet *outer,
					       const struct tunnel *t, struct packet *inner)
{
	inner->l3 = outer->l3 + t->header;
	inner->limit = inner->l3 + t->payload;
	inner->ethertype =
		t->protocol == IPPROTO_IPIP ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
	inner->source_port = t->source_port;
	inner->destination_port = t->destination_port;
	inner->tcp_flags = 0;
	inner->fragment_offset = 0;
	return frame_parse_ip(skb, inner);
}

/*
 * Did GRO put several GUE packets into the buffer? Then a segment is the first one, with its
 * headers; of one large packet inside, it is a part. Removing one header would spoil the others.
 */
static __always_inline bool decap_is_merged(struct __sk_buff *skb, const struct packet *inner,
					    const struct tunnel *t)
{
	return t->entropy && skb->gso_size && inner->l3_length != t->payload;
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

/* For when the family of the outermost IP header has changed: the kernel knows it already. */
static __always_inline int frame_set_ethertype(struct __sk_buff *skb, __be16 ethertype)
{
	return bpf_skb_store_bytes(skb, offsetof(struct ethhdr, h_proto), &ethertype,
				   sizeof(ethertype), 0);
}

/* The flag by which bpf_skb_adjust_room() makes a buffer one of the family. */
static __always_inline __u64 decap_flag(__be16 ethertype)
{
	return ethertype == bpf_htons(ETH_P_IP) ? BPF_F_ADJ_ROOM_DECAP_L3_IPV4
						: BPF_F_ADJ_ROOM_DECAP_L3_IPV6;
}

/*
 * Removes what stands before the inner IP header; inner's offsets follow. A buffer that GRO or
 * TSO made of many segments keeps their size: they are as large as before, only their number of
 * headers is less. What the NIC has verified stays verified, so that nobody sums it again: the
 * checksum of UDP outside is the first of those that skb->csum_level counts, also where it is 0.
 */
static __always_inline int decap(struct __sk_buff *skb, const struct packet *outer,
				 const struct tunnel *t, struct packet *inner)
{
	__u8 tos =
		(inner->tos & ~ECN_MASK) | decap_ecn(outer->tos & ECN_MASK, inner->tos & ECN_MASK);
	__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET |
		      decap_flag(inner->ethertype);
	int err;

	err = bpf_skb_adjust_room(skb, -(__s32)t->header, BPF_ADJ_ROOM_MAC, flags);
	if (err)
		return err;
	if (outer->protocol == IPPROTO_UDP)
		bpf_csum_level(skb, BPF_CSUM_LEVEL_DEC);
	inner->l3 -= t->header;
	inner->l4 -= t->header;
	inner->limit -= t->header;
	if (inner->ethertype != outer->ethertype) {
		err = frame_set_ethertype(skb, inner->ethertype);
		if (err)
			return err;
	}
	return tos == inner->tos ? 0 : decap_set_tos(skb, inner, tos);
}
