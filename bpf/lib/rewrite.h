/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Replacing an address and a port. The kernel's checksum helpers are used throughout, for only
 * they know whether the checksum is whole, yet to be filled in by the device (partial), or kept
 * as a sum over the packet beside it (complete).
 */
#pragma once

#include "lib/packet.h"

enum side {
	SOURCE = 0,
	DESTINATION = 1,
};

static __always_inline __u32 transport_checksum(const struct packet *p)
{
	if (p->protocol == IPPROTO_TCP)
		return p->l4 + offsetof(struct tcphdr, check);
	return p->l4 + offsetof(struct udphdr, check);
}

/* UDP: a checksum of zero means none, and stays so. */
static __always_inline __u64 checksum_flags(const struct packet *p)
{
	return p->protocol == IPPROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0;
}

static __always_inline int rewrite_address4(struct __sk_buff *skb, const struct packet *p,
					    enum side side, __be32 from, __be32 to)
{
	__u32 at = p->l3 + offsetof(struct iphdr, saddr) + side * sizeof(to);
	__u64 flags = checksum_flags(p) | BPF_F_PSEUDO_HDR | sizeof(to);
	int err;

	err = bpf_l4_csum_replace(skb, transport_checksum(p), from, to, flags);
	if (err)
		return err;
	err = bpf_l3_csum_replace(skb, p->l3 + offsetof(struct iphdr, check), from, to, sizeof(to));
	return err ?: bpf_skb_store_bytes(skb, at, &to, sizeof(to), 0);
}

static __always_inline int rewrite_address6(struct __sk_buff *skb, const struct packet *p,
					    enum side side, const struct address *from,
					    const struct address *to)
{
	__u32 at = p->l3 + offsetof(struct ipv6hdr, saddr) + side * sizeof(*to);
	__u64 flags = checksum_flags(p) | BPF_F_PSEUDO_HDR | BPF_F_IPV6;
	__s64 difference;
	int err;

	difference = bpf_csum_diff((__be32 *)from, sizeof(*from), (__be32 *)to, sizeof(*to), 0);
	if (difference < 0)
		return difference;
	err = bpf_l4_csum_replace(skb, transport_checksum(p), 0, difference, flags);
	return err ?: bpf_skb_store_bytes(skb, at, to, sizeof(*to), 0);
}

static __always_inline int rewrite_port(struct __sk_buff *skb, const struct packet *p,
					enum side side, __be16 from, __be16 to)
{
	__u32 at = p->l4 + side * sizeof(to);
	__u64 flags = checksum_flags(p) | sizeof(to);
	int err;

	if (from == to)
		return 0;
	err = bpf_l4_csum_replace(skb, transport_checksum(p), from, to, flags);
	return err ?: bpf_skb_store_bytes(skb, at, &to, sizeof(to), 0);
}

/* Replaces one side's address and port by ones of the same family. */
static __always_inline int rewrite(struct __sk_buff *skb, const struct packet *p, enum side side,
				   const struct address *to, __be16 to_port)
{
	struct address from = side == SOURCE ? p->source : p->destination;
	__be16 from_port = side == SOURCE ? p->source_port : p->destination_port;
	int err;

	if (p->ethertype == bpf_htons(ETH_P_IP))
		err = rewrite_address4(skb, p, side, from.words[3], to->words[3]);
	else
		err = rewrite_address6(skb, p, side, &from, to);
	return err ?: rewrite_port(skb, p, side, from_port, to_port);
}

/* Two bytes of the TCP header. What stands at an odd offset enters the checksum the other way
 * round. */
static __always_inline int rewrite_tcp16(struct __sk_buff *skb, const struct packet *p, __u32 at,
					 __be16 from, __be16 to)
{
	bool odd = at & 1;
	int err;

	err = bpf_l4_csum_replace(skb, transport_checksum(p), odd ? __builtin_bswap16(from) : from,
				  odd ? __builtin_bswap16(to) : to, sizeof(to));
	return err ?: bpf_skb_store_bytes(skb, p->l4 + at, &to, sizeof(to), 0);
}

/* Swaps the bytes of each half. */
static __always_inline __u32 swap_halves(__u32 word)
{
	return (word & 0x00ff00ff) << 8 | (word >> 8 & 0x00ff00ff);
}

/* Four bytes of the TCP header. */
static __always_inline int rewrite_tcp32(struct __sk_buff *skb, const struct packet *p, __u32 at,
					 __be32 from, __be32 to)
{
	bool odd = at & 1;
	int err;

	if (from == to)
		return 0;
	err = bpf_l4_csum_replace(skb, transport_checksum(p), odd ? swap_halves(from) : from,
				  odd ? swap_halves(to) : to, sizeof(to));
	return err ?: bpf_skb_store_bytes(skb, p->l4 + at, &to, sizeof(to), 0);
}
