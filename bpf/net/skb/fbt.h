/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finding and removing the Fast Bypass TCP option of a socket buffer. */
#pragma once

#include "net/fbt.h"
#include "net/skb/rewrite.h"

/* A TCP header whose first option is an FBT. */
struct fbt_head {
	struct tcphdr tcp;
	struct fbt fbt;
};

/*
 * Reads the segment's fixed header, and the option if it is the first one: later ones are the
 * client's own. False: the segment has none.
 */
static __always_inline bool fbt_find(struct __sk_buff *skb, __u32 l4, struct fbt_head *head)
{
	if (bpf_skb_load_bytes(skb, l4, head, sizeof(*head)))
		return false;
	return head->tcp.doff * 4 >= sizeof(*head) && fbt_is_ours(&head->fbt);
}

/* Writes the length of an IP packet whose header is within reach. */
static __always_inline int fbt_set_length(struct __sk_buff *skb, const struct packet *p, __u32 to)
{
	struct iphdr *ip = frame_at(skb, p->l3, sizeof(*ip));
	__be16 length = bpf_htons(to - sizeof(struct ipv6hdr));

	if (p->ethertype != bpf_htons(ETH_P_IP))
		return bpf_skb_store_bytes(skb, p->l3 + offsetof(struct ipv6hdr, payload_len),
					   &length, sizeof(length), BPF_F_RECOMPUTE_CSUM);
	if (!ip)
		return -1;
	length = bpf_htons(to);
	ip->check = header_checksum(ip->check, ip->tot_len, length);
	ip->tot_len = length;
	return 0;
}

/*
 * Removes the option that fbt_find() has found in the outermost packet, which has neither IP
 * options nor extension headers; p's lengths follow. What the removal changes under the TCP
 * checksum is no longer in the buffer's sum, so it counts as the pseudo header's does. That is
 * wrong where the checksum is yet to be filled in: muxes send no such packets.
 */
static __noinline int fbt_strip(struct __sk_buff *skb, struct packet *p, struct fbt_head *head)
{
	__be16 *doff = (__be16 *)&head->tcp + 6, was = *doff;
	__u32 l3 = p->l3, l4 = p->l4, tcp = p->l3_length - (l4 - l3), difference;
	__u32 check = l4 + offsetof(struct tcphdr, check);

	if (l4 - l3 !=
	    (p->ethertype == bpf_htons(ETH_P_IP) ? sizeof(struct iphdr) : sizeof(struct ipv6hdr)))
		return -1;
	head->tcp.doff -= sizeof(struct fbt) / 4;
	difference = bpf_csum_diff((__be32 *)&head->fbt, sizeof(head->fbt), NULL, 0, 0);
	difference = sum_change(difference, was, *doff);
	difference = sum_change(difference, bpf_htons(tcp), bpf_htons(tcp - sizeof(struct fbt)));
	if (bpf_skb_adjust_room(skb, -(__s32)sizeof(struct fbt), BPF_ADJ_ROOM_NET,
				BPF_F_ADJ_ROOM_FIXED_GSO))
		return -1;
	if (bpf_skb_store_bytes(skb, l4, &head->tcp, sizeof(head->tcp), BPF_F_RECOMPUTE_CSUM))
		return -1;
	p->l3_length -= sizeof(struct fbt);
	p->limit -= sizeof(struct fbt);
	frame_reach(skb, l4 + sizeof(struct tcphdr));
	if (fbt_set_length(skb, p, p->l3_length))
		return -1;
	return bpf_l4_csum_replace(skb, check, 0, difference, BPF_F_PSEUDO_HDR);
}
