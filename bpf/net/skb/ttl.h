/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The TTL of an IP header in a socket buffer, IPv6's hop limit. */
#pragma once

#include "net/skb/frame.h"

static __always_inline __u32 ttl_offset(const struct packet *p)
{
	return p->l3 + (p->ethertype == bpf_htons(ETH_P_IP) ? offsetof(struct iphdr, ttl)
							    : offsetof(struct ipv6hdr, hop_limit));
}

static __always_inline __u8 ttl_read(struct __sk_buff *skb, const struct packet *p)
{
	__u8 ttl = 0;

	bpf_skb_load_bytes(skb, ttl_offset(p), &ttl, sizeof(ttl));
	return ttl;
}

static __noinline int ttl_write(struct __sk_buff *skb, const struct packet *p, __u8 ttl)
{
	__u32 at = ttl_offset(p);
	__be16 old, fresh;
	int err;

	if (p->ethertype != bpf_htons(ETH_P_IP))
		return bpf_skb_store_bytes(skb, at, &ttl, sizeof(ttl), BPF_F_RECOMPUTE_CSUM);
	/* The checksum counts it with the protocol behind it. */
	err = bpf_skb_load_bytes(skb, at, &old, sizeof(old));
	if (err)
		return err;
	fresh = (old & bpf_htons(0xff)) | bpf_htons(ttl << 8);
	err = bpf_l3_csum_replace(skb, p->l3 + offsetof(struct iphdr, check), old, fresh,
				  sizeof(fresh));
	return err ?: bpf_skb_store_bytes(skb, at, &fresh, sizeof(fresh), 0);
}
