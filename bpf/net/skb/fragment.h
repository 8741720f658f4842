/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Replacing an address of a fragment that has no ports. */
#pragma once

#include "net/skb/rewrite.h"

/* Replaces one side's address of a fragment without a transport header. */
static __always_inline int rewrite_fragment(struct __sk_buff *skb, const struct packet *p,
					    enum side side, const struct address *to)
{
	__u32 at = p->l3 + offsetof(struct ipv6hdr, saddr) + side * sizeof(*to);
	__be32 from = side == SOURCE ? p->source.words[3] : p->destination.words[3];
	__be32 to4 = to->words[3];
	int err;

	if (p->ethertype != bpf_htons(ETH_P_IP))
		return bpf_skb_store_bytes(skb, at, to, sizeof(*to), BPF_F_RECOMPUTE_CSUM);
	at = p->l3 + offsetof(struct iphdr, saddr) + side * sizeof(to4);
	err = bpf_l3_csum_replace(skb, p->l3 + offsetof(struct iphdr, check), from, to4,
				  sizeof(to4));
	return err ?: bpf_skb_store_bytes(skb, at, &to4, sizeof(to4), 0);
}
