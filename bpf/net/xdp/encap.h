/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * IP-in-IP (RFC 2003, RFC 2473) and GUE (abi/shared/gue.h), in all four combinations of families.
 * The outer header is put together in registers: reading back what was just written in smaller
 * pieces stalls.
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "abi/shared/gue.h"
#include "net/packet.h"

enum {
	OUTER_TTL = 64,
	OUTER_DONT_FRAGMENT = 0x40, /* first byte of the IPv4 header's fragment word */
	OUTER_LABEL_MASK = 0xfffff,
	ETH_HLEN_MAX = 22, /* with two VLAN tags */
};

/* The addresses and what else differs between two tunnels. */
struct outer {
	const __u32 *macs; /* the first 12 bytes of a frame: destination, then source */
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

/* Writes the addresses and the VLAN tags of a frame whose IP header will stand at data + l3. */
static __always_inline void write_macs(void *data, __u32 l3, const __u32 *macs,
				       const struct vlan_tags *v)
{
	__u32 *to = data;

	to[0] = macs[0];
	to[1] = macs[1];
	to[2] = macs[2];
	if (l3 > sizeof(struct ethhdr))
		to[3] = v->tags[0];
	if (l3 > sizeof(struct ethhdr) + sizeof(struct vlan_header))
		to[4] = v->tags[1];
}

/* Writes the frame's first bytes up to the outer IP header at data + p->l3. */
static __always_inline void write_ethernet(void *data, const struct packet *p, const __u32 *macs,
					   const struct vlan_tags *v, __be16 ethertype)
{
	write_macs(data, p->l3, macs, v);
	*(__be16 *)(data + p->l3 - sizeof(ethertype)) = ethertype;
}

/*
 * Moves the head of a frame and writes what stands before its IP header, which will be at l3.
 * Returns that place, with room for so many bytes; NULL: there is no room.
 */
static __always_inline void *move_head(struct xdp_md *ctx, int delta, __u32 l3, const __u32 *macs,
				       __be16 ethertype, const __u32 bytes)
{
	__u32 type = l3 - sizeof(ethertype); /* offset of the frame's ethertype */
	struct vlan_tags vlan = {};
	void *data, *to;

	if (l3 > sizeof(struct ethhdr) && !vlan_tags_load(ctx, &vlan))
		return NULL;
	if (bpf_xdp_adjust_head(ctx, delta))
		return NULL;
	data = (void *)(long)ctx->data;
	barrier_var(type);
	if (type > ETH_HLEN_MAX - sizeof(ethertype))
		return NULL;
	to = data + type;
	barrier_var(to); /* one pointer, so that one check holds for all that is written */
	if (data + ETH_HLEN_MAX > (void *)(long)ctx->data_end ||
	    to + sizeof(ethertype) + bytes > (void *)(long)ctx->data_end)
		return NULL;
	write_macs(data, l3, macs, &vlan);
	*(__be16 *)to = ethertype;
	return to + sizeof(ethertype);
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

/* The protocol number of the packet as what another carries. */
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
	write_ethernet(data, p, outer->macs, v, bpf_htons(ETH_P_IP));
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
	write_ethernet(data, p, outer->macs, v, bpf_htons(ETH_P_IPV6));
	write_outer_v6(data + p->l3, p, outer);
	return true;
}

/* All of a frame in GUE that is not the packet: by value, for push_gue to be a function of its own.
 */
struct gue_push {
	__u32 macs[3];
	struct vlan_tags vlan;
	struct address source;
	struct address destination;
	struct address other; /* that weir names, when its step is not GUE_CHAIN_NONE */
	__u64 hash; /* of the flow: for the source port and the flow label */
	struct gue_weir weir; /* version 0: not sent */
	__u32 l3_length; /* of the packet */
	__u32 l3;
	__u8 protocol; /* inner_protocol() */
	__u8 tos;
	bool v4; /* the tunnel's family */
	bool other_v4;
};

/* 32-bit words of GUE's private data. */
static __always_inline __u32 gue_words(const struct gue_weir *weir, bool other_v4)
{
	if (!weir->version)
		return 0;
	if (weir->step == GUE_CHAIN_NONE)
		return GUE_WEIR_WORDS;
	return GUE_WEIR_WORDS + (other_v4 ? 1 : 4);
}

/* Bytes that GUE adds before the packet. */
static __always_inline __u32 gue_growth(const struct gue_weir *weir, bool v4, bool other_v4)
{
	__u32 ip = v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);

	return ip + sizeof(struct udphdr) + sizeof(struct gue) + 4 * gue_words(weir, other_v4);
}

static __always_inline void write_gue_v4(__u32 *to, const struct gue_push *g, __u32 length)
{
	__be32 source = g->source.words[3], destination = g->destination.words[3];
	__u32 head =
		0x45 | (__u32)g->tos << 8 | (__u32)bpf_htons(length + sizeof(struct iphdr)) << 16;
	__u32 fragment = OUTER_DONT_FRAGMENT << 16;
	__u32 rest = OUTER_TTL | IPPROTO_UDP << 8;
	__u64 sum = (__u64)head + fragment + rest + source + destination;

	to[0] = head;
	to[1] = fragment;
	to[2] = rest | checksum_fold(sum) << 16;
	to[3] = source;
	to[4] = destination;
}

static __always_inline void write_gue_v6(__u32 *to, const struct gue_push *g, __u32 length)
{
	to[0] = bpf_htonl(6U << 28 | (__u32)g->tos << 20 | ((__u32)g->hash & OUTER_LABEL_MASK));
	to[1] = bpf_htons(length) | IPPROTO_UDP << 16 | (__u32)OUTER_TTL << 24;
	for (int i = 0; i < 4; i++) {
		to[2 + i] = g->source.words[i];
		to[6 + i] = g->destination.words[i];
	}
}

/* UDP without a checksum (RFC 6935), then GUE's first word. Length is UDP's. */
static __always_inline void write_gue(__u32 *to, const struct gue_push *g, __u32 length,
				      __u32 words)
{
	__u32 port = 0xc000 | (g->hash >> 32 & 0x3fff);

	to[0] = bpf_htons(port) | (__u32)bpf_htons(GUE_PORT) << 16;
	to[1] = bpf_htons(length);
	to[2] = words | (__u32)g->protocol << 8;
}

/* Writes gue_weir and the other backend's tunnel. */
static __always_inline bool write_gue_weir(void *to, void *end, const struct gue_push *g)
{
	__u32 *other = to + sizeof(g->weir);

	if (to + sizeof(g->weir) > end)
		return false;
	__builtin_memcpy(to, &g->weir, sizeof(g->weir));
	if (g->weir.step == GUE_CHAIN_NONE)
		return true;
	if (g->other_v4) {
		if ((void *)(other + 1) > end)
			return false;
		other[0] = g->other.words[3];
		return true;
	}
	if ((void *)(other + 4) > end)
		return false;
	for (int i = 0; i < 4; i++)
		other[i] = g->other.words[i];
	return true;
}

/*
 * Grows the frame and writes all that stands before the inner IP header. Returns whether there
 * was room. A function of its own, which the verifier walks once.
 */
__noinline int push_gue(struct xdp_md *ctx, const struct gue_push *g)
{
	__u32 words, growth, length, ip;
	void *data, *end, *to;
	__u32 type; /* offset of the frame's ethertype */

	if (!g)
		return 0;
	words = gue_words(&g->weir, g->other_v4);
	growth = gue_growth(&g->weir, g->v4, g->other_v4);
	ip = g->v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	length = g->l3_length + growth - ip;
	type = g->l3 - sizeof(__be16);
	if (type > ETH_HLEN_MAX - sizeof(__be16))
		return 0;
	if (bpf_xdp_adjust_head(ctx, -(int)growth))
		return 0;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	to = data + type;
	barrier_var(to); /* one pointer for all that follows, so that one check holds for it */
	if (data + ETH_HLEN_MAX > end || to + sizeof(__be16) + sizeof(struct ipv6hdr) > end)
		return 0;
	write_macs(data, g->l3, g->macs, &g->vlan);
	*(__be16 *)to = g->v4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
	to += sizeof(__be16);
	if (g->v4)
		write_gue_v4(to, g, length);
	else
		write_gue_v6(to, g, length);
	to += ip;
	if (to + sizeof(struct udphdr) + sizeof(struct gue) > end)
		return 0;
	write_gue(to, g, length, words);
	return !g->weir.version ||
	       write_gue_weir(to + sizeof(struct udphdr) + sizeof(struct gue), end, g);
}
