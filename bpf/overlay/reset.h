/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Resets for segments of no session: the segment itself is turned round, so it
 * needs no state (RFC 9293, section 3.10.7.1).
 */
#pragma once

#include "overlay/answer.h"

/* The reset's own header. */
static __always_inline void reset_header(const struct packet *p, const struct tcphdr *in,
					 struct tcphdr *out)
{
	__u32 length = p->l3 + p->l3_length - p->l4 - in->doff * 4 + in->syn + in->fin;

	out->source = in->dest;
	out->dest = in->source;
	out->doff = sizeof(*out) / 4;
	out->rst = 1;
	if (in->ack) {
		out->seq = in->ack_seq;
	} else {
		out->ack = 1;
		out->ack_seq = bpf_htonl(bpf_ntohl(in->seq) + length);
	}
	out->check = 0xffff; /* zero, whoever ends the sum: see l4_csum_replace below */
}

/* Swaps the frame's and the packet's addresses; sets its length. */
static __noinline int reset_turn(struct __sk_buff *skb, const struct packet *p, __u32 length)
{
	__u32 l3 = p->l3, at = l3 - sizeof(struct ethhdr);
	__u8 macs[12], turned[12];
	__be32 v4[2] = { p->destination.words[3], p->source.words[3] };
	__be16 was = bpf_htons(p->l3_length), is = bpf_htons(length);
	struct address v6[2] = { p->destination, p->source };

	if (bpf_skb_load_bytes(skb, at, macs, sizeof(macs)))
		return -1;
	__builtin_memcpy(turned, macs + 6, 6);
	__builtin_memcpy(turned + 6, macs, 6);
	if (bpf_skb_store_bytes(skb, at, turned, sizeof(turned), 0))
		return -1;
	if (p->ethertype == bpf_htons(ETH_P_IP))
		return bpf_skb_store_bytes(skb, l3 + offsetof(struct iphdr, saddr), v4, sizeof(v4),
					   0) ||
		       bpf_skb_store_bytes(skb, l3 + offsetof(struct iphdr, tot_len), &is,
					   sizeof(is), 0) ||
		       bpf_l3_csum_replace(skb, l3 + offsetof(struct iphdr, check), was, is,
					   sizeof(is));
	is = bpf_htons(length - sizeof(struct ipv6hdr));
	return bpf_skb_store_bytes(skb, l3 + offsetof(struct ipv6hdr, saddr), v6, sizeof(v6), 0) ||
	       bpf_skb_store_bytes(skb, l3 + offsetof(struct ipv6hdr, payload_len), &is, sizeof(is),
				   0);
}

/*
 * Makes the segment at p, at any depth of the frame, one with that header, without options and
 * data, back to its sender.
 */
static __noinline int segment_turn(struct __sk_buff *skb, struct packet *p, const struct tcphdr *to)
{
	__u32 header = p->l4 - p->l3, length = header + sizeof(struct tcphdr);
	__u32 check = p->l4 + offsetof(struct tcphdr, check);
	struct tcphdr out = *to;
	struct {
		struct address source;
		struct address destination;
		__be32 length;
		__be32 protocol;
	} pseudo = { p->source, p->destination, bpf_htonl(sizeof(out)), bpf_htonl(IPPROTO_TCP) };
	__s64 sum, before;

	if (bpf_skb_change_tail(skb, p->l3 + length, 0) || reset_turn(skb, p, length))
		return -1;
	if (address_is_v4(&p->source)) /* what makes them IPv6 is not in it */
		pseudo.source.words[2] = pseudo.destination.words[2] = 0;
	sum = bpf_csum_diff(NULL, 0, (__be32 *)&out, sizeof(out), 0);
	before = bpf_csum_diff(NULL, 0, (__be32 *)&pseudo, sizeof(pseudo), 0);
	p->l3_length = length;
	if (sum < 0 || before < 0 || bpf_skb_store_bytes(skb, p->l4, &out, sizeof(out), 0))
		return -1;
	return bpf_l4_csum_replace(skb, check, 0, sum, 0) ||
	       bpf_l4_csum_replace(skb, check, 0, before, BPF_F_PSEUDO_HDR);
}

/* Makes the segment the reset that answers it. */
static __always_inline int reset_make(struct __sk_buff *skb, struct packet *p,
				      const struct tcphdr *in)
{
	struct tcphdr out = {};

	reset_header(p, in, &out);
	return segment_turn(skb, p, &out);
}

/* Turns a client's segment of no session round, to the host that it is from. */
static __noinline enum verdict reset_client(struct __sk_buff *skb, struct overlay_ctx *a)
{
	struct overlay_traffic *t;
	__u32 number = a->key.attachment;
	enum verdict verdict;

	if (a->head.tcp.rst)
		return VERDICT_DROP_NO_SESSION;
	verdict = path_to_sender(a);
	if (verdict)
		return verdict;
	if (!quota_reset(a->attachment.tenant))
		return VERDICT_DROP_RESET_LIMITED;
	t = bpf_map_lookup_elem(&traffic, &number);
	if (t)
		t->resets++;

	/* From here on the packet is touched: fail closed. */
	if (decap(skb, &a->outer, &a->tunnel, &a->inner) ||
	    (a->header.length && bypass_header_strip(skb, &a->inner, a->header.next)) ||
	    reset_make(skb, &a->inner, &a->head.tcp))
		return VERDICT_DROP_REWRITE;
	return encapsulate_for(skb, a, VERDICT_RESET_CLIENT, VERDICT_REPLY_LOCAL);
}
