/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Replacing an address and a port. The transport's checksum is left to the kernel's helpers, for
 * only they know whether it is whole, yet to be filled in by the device (partial), or kept as a sum
 * over the packet beside it (complete). They are asked twice at most: for what the pseudo header
 * holds, and for all else. The rest is written in place: a helper's call costs as much as the whole
 * of that.
 */
#pragma once

#include "net/skb/frame.h"
#include "net/tcp.h"

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

/* A ones' complement sum, not folded, after a word under it was changed (RFC 1624). */
static __always_inline __u32 sum_change(__u32 sum, __u32 from, __u32 to)
{
	__u64 wide = (__u64)sum + (__u32)~from + to;

	wide = (wide & 0xffffffff) + (wide >> 32);
	return (wide & 0xffffffff) + (wide >> 32);
}

/* The IP header's checksum after a word under it was changed. */
static __always_inline __u16 header_checksum(__u16 checksum, __be32 from, __be32 to)
{
	__u32 sum = sum_change((__u16)~checksum, from, to);

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* Where the frame's bytes at an offset are, if size of them are within reach; else NULL. */
static __always_inline void *frame_at(struct __sk_buff *skb, __u32 at, __u32 size)
{
	void *bytes;

	barrier_var(at); /* what the compiler knows of it, the verifier has forgotten */
	if (at > FRAME_L4_MAX + sizeof(struct tcphdr) + TCP_OPTIONS_MAX)
		return NULL;
	bytes = frame_data(skb) + at;
	barrier_var(bytes);
	return bytes + size <= frame_end(skb) ? bytes : NULL;
}

static __always_inline int rewrite_address4(struct __sk_buff *skb, const struct packet *p,
					    enum side side, __be32 from, __be32 to)
{
	__u64 flags = checksum_flags(p) | BPF_F_PSEUDO_HDR | sizeof(to);
	struct iphdr *ip = frame_at(skb, p->l3, sizeof(*ip));

	if (!ip)
		return -1;
	ip->check = header_checksum(ip->check, from, to);
	if (side == SOURCE)
		ip->saddr = to;
	else
		ip->daddr = to;
	return bpf_l4_csum_replace(skb, transport_checksum(p), from, to, flags);
}

static __always_inline int rewrite_address6(struct __sk_buff *skb, const struct packet *p,
					    enum side side, const struct address *from,
					    const struct address *to)
{
	__u64 flags = checksum_flags(p) | BPF_F_PSEUDO_HDR | BPF_F_IPV6;
	struct ipv6hdr *ip = frame_at(skb, p->l3, sizeof(*ip));
	__u32 difference = 0;

	if (!ip)
		return -1;
	__builtin_memcpy(side == SOURCE ? &ip->saddr : &ip->daddr, to, sizeof(*to));
#pragma unroll
	for (int i = 0; i < 4; i++)
		difference = sum_change(difference, from->words[i], to->words[i]);
	return bpf_l4_csum_replace(skb, transport_checksum(p), 0, difference, flags);
}

/*
 * Replaces one side's address and port by ones of the same family. What then differs under the
 * transport's checksum but not in the pseudo header is added to difference: rewrite_end() mends it.
 */
static __always_inline int rewrite_begin(struct __sk_buff *skb, const struct packet *p,
					 enum side side, const struct address *to, __be16 to_port,
					 __u32 *difference)
{
	struct address from = side == SOURCE ? p->source : p->destination;
	__be16 from_port = side == SOURCE ? p->source_port : p->destination_port;
	struct ports *ports;
	int err;

	if (from_port != to_port) {
		ports = frame_at(skb, p->l4, sizeof(*ports));
		if (!ports)
			return -1;
		if (side == SOURCE)
			ports->source = to_port;
		else
			ports->destination = to_port;
		*difference = sum_change(*difference, from_port, to_port);
	}
	if (p->ethertype == bpf_htons(ETH_P_IP))
		err = rewrite_address4(skb, p, side, from.words[3], to->words[3]);
	else
		err = rewrite_address6(skb, p, side, &from, to);
	return err;
}

static __always_inline int rewrite_end(struct __sk_buff *skb, const struct packet *p,
				       __u32 difference)
{
	if (!difference)
		return 0;
	return bpf_l4_csum_replace(skb, transport_checksum(p), 0, difference, checksum_flags(p));
}

/* Replaces one side's address and port by ones of the same family, and nothing else. */
static __always_inline int rewrite(struct __sk_buff *skb, const struct packet *p, enum side side,
				   const struct address *to, __be16 to_port)
{
	__u32 difference = 0;
	int err = rewrite_begin(skb, p, side, to, to_port, &difference);

	return err ?: rewrite_end(skb, p, difference);
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

/* Four bytes of the TCP header. What that changes under its checksum is added to difference. */
static __always_inline int rewrite_tcp32(struct __sk_buff *skb, const struct packet *p, __u32 at,
					 __be32 from, __be32 to, __u32 *difference)
{
	__be32 *word = frame_at(skb, p->l4 + at, sizeof(to));
	bool odd = at & 1;

	*difference =
		sum_change(*difference, odd ? swap_halves(from) : from, odd ? swap_halves(to) : to);
	if (!word)
		return bpf_skb_store_bytes(skb, p->l4 + at, &to, sizeof(to), 0);
	*word = to;
	return 0;
}
