/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * IP-in-IP (RFC 2003, RFC 2473) in all four combinations of families. The outer header is put
 * together in registers: reading back what was just written in smaller pieces stalls.
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "abi/mux_next_hop.h"
#include "lib/packet.h"

enum {
	OUTER_TTL = 64,
	OUTER_DONT_FRAGMENT = 0x40, /* first byte of the IPv4 header's fragment word */
	OUTER_LABEL_MASK = 0xfffff,
};

/* The addresses and what else differs between two tunnels. */
struct outer {
	const struct next_hop *hop;
	const struct address *source;
	const struct address *destination;
	__u32 label; /* for IPv6: spreads flows over links (RFC 6438) */
};

/* VLAN tags, TPID first, of a frame whose head is about to move. */
struct vlan_tags {
	__u32 tags[2];
};

static __always_inline bool vlan_tags_load(struct xdp_md *ctx, struct vlan_tags *v)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 *first = data + 2 * ETH_ALEN;

	if ((void *)(first + 2) > end)
		return false;
	v->tags[0] = first[0];
	v->tags[1] = first[1];
	return true;
}

/* Writes the frame's first bytes up to the outer IP header at data + p->l3. */
static __always_inline void write_ethernet(void *data, const struct packet *p,
					   const struct next_hop *hop, const struct vlan_tags *v,
					   __be16 ethertype)
{
	__u32 *to = data;

	to[0] = hop->macs[0];
	to[1] = hop->macs[1];
	to[2] = hop->macs[2];
	if (p->l3 > sizeof(struct ethhdr))
		to[3] = v->tags[0];
	if (p->l3 > sizeof(struct ethhdr) + sizeof(struct vlan_header))
		to[4] = v->tags[1];
	*(__be16 *)(data + p->l3 - sizeof(ethertype)) = ethertype;
}

/* The checksum of a header from the sum of its 32-bit words. */
static __always_inline __u32 checksum_fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum & 0xffff;
}

static __always_inline __u32 inner_protocol(const struct packet *p)
{
	return p->ethertype == bpf_htons(ETH_P_IP) ? IPPROTO_IPIP : IPPROTO_IPV6;
}

/* DSCP and ECN go outward (RFC 6040). */
static __always_inline void write_outer_v4(__u32 *to, const struct packet *p,
					   const struct outer *outer)
{
	__be32 source = outer->source->words[3], destination = outer->destination->words[3];
	__u32 length = p->l3_length + sizeof(struct iphdr);
	__u32 head = 0x45 | p->tos << 8 | (__u32)bpf_htons(length) << 16;
	__u32 fragment = OUTER_DONT_FRAGMENT << 16;
	__u32 rest = OUTER_TTL | inner_protocol(p) << 8;
	__u64 sum = (__u64)head + fragment + rest + source + destination;

	to[0] = head;
	to[1] = fragment;
	to[2] = rest | checksum_fold(sum) << 16;
	to[3] = source;
	to[4] = destination;
}

static __always_inline void write_outer_v6(__u32 *to, const struct packet *p,
					   const struct outer *outer)
{
	to[0] = bpf_htonl(6U << 28 | (__u32)p->tos << 20 | (outer->label & OUTER_LABEL_MASK));
	to[1] = bpf_htons(p->l3_length) | inner_protocol(p) << 16 | (__u32)OUTER_TTL << 24;
#pragma unroll
	for (int i = 0; i < 4; i++) {
		to[2 + i] = outer->source->words[i];
		to[6 + i] = outer->destination->words[i];
	}
}

/* Grows the frame at its head and writes all that stands before the inner IP header. */
static __always_inline bool push_outer_v4(struct xdp_md *ctx, const struct packet *p,
					  const struct vlan_tags *v, const struct outer *outer)
{
	void *data, *end;

	if (bpf_xdp_adjust_head(ctx, -(int)sizeof(struct iphdr)))
		return false;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + p->l3 + sizeof(struct iphdr) > end)
		return false;
	write_ethernet(data, p, outer->hop, v, bpf_htons(ETH_P_IP));
	write_outer_v4(data + p->l3, p, outer);
	return true;
}

static __always_inline bool push_outer_v6(struct xdp_md *ctx, const struct packet *p,
					  const struct vlan_tags *v, const struct outer *outer)
{
	void *data, *end;

	if (bpf_xdp_adjust_head(ctx, -(int)sizeof(struct ipv6hdr)))
		return false;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	if (data + p->l3 + sizeof(struct ipv6hdr) > end)
		return false;
	write_ethernet(data, p, outer->hop, v, bpf_htons(ETH_P_IPV6));
	write_outer_v6(data + p->l3, p, outer);
	return true;
}
