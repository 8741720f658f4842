/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Forwards a packet to another host, in GUE: with new outer headers, the inner packet unchanged.
 * What is to be said of it stands in a->hop.
 */
#pragma once

#include "agent/rx_ctx.h"
#include "agent/steer_tables.h"
#include "net/flowhash.h"

/* UDP source ports that entropy is taken from: dynamic ones (RFC 6335, section 6). */
#define FORWARD_ENTROPY_FIRST 0xc000

/* UDP source port of a packet that came in IP and leaves in GUE. */
static __always_inline __be16 forward_entropy(const struct packet *p)
{
	return flowhash(p, &pool_key) | bpf_htons(FORWARD_ENTROPY_FIRST);
}

/*
 * Changes the length of the outer headers by difference, and their family. The kernel changes the
 * family only when it shrinks a buffer: so it is shrunk first, then grown by as much.
 */
static __always_inline int forward_make_room(struct __sk_buff *skb, __be16 from, __be16 to,
					     __s32 difference)
{
	__u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO;
	__s32 shrink = difference < 0 ? -difference : 4;
	int err;

	if (from != to) {
		err = bpf_skb_adjust_room(skb, -shrink, BPF_ADJ_ROOM_MAC, flags | decap_flag(to));
		err = err ?: frame_set_ethertype(skb, to);
		if (err)
			return err;
		difference += shrink;
	}
	return difference ? bpf_skb_adjust_room(skb, difference, BPF_ADJ_ROOM_MAC, flags) : 0;
}

static __noinline int forward_write_v4(struct __sk_buff *skb, const struct rx_ctx *a, __be32 source,
				       __u32 length)
{
	struct iphdr ip = {
		.version = 4,
		.ihl = sizeof(ip) / 4,
		.tos = a->outer.tos,
		.tot_len = bpf_htons(sizeof(ip) + length),
		.frag_off = bpf_htons(0x4000), /* don't fragment */
		.ttl = 64,
		.protocol = IPPROTO_UDP,
		.saddr = source,
		.daddr = a->hop.to.words[3],
	};
	__s64 sum = bpf_csum_diff(NULL, 0, (__be32 *)&ip, sizeof(ip), 0);

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	ip.check = ~sum;
	return bpf_skb_store_bytes(skb, sizeof(struct ethhdr), &ip, sizeof(ip),
				   BPF_F_RECOMPUTE_CSUM | BPF_F_INVALIDATE_HASH);
}

static __noinline int forward_write_v6(struct __sk_buff *skb, const struct rx_ctx *a,
				       const struct address *source, __u32 length)
{
	struct ipv6hdr ip = {
		.version = 6,
		.priority = a->outer.tos >> 4,
		.flow_lbl = { a->outer.tos << 4 },
		.payload_len = bpf_htons(length),
		.nexthdr = IPPROTO_UDP,
		.hop_limit = 64,
	};

	__builtin_memcpy(&ip.saddr, source, sizeof(ip.saddr));
	__builtin_memcpy(&ip.daddr, &a->hop.to, sizeof(ip.daddr));
	return bpf_skb_store_bytes(skb, sizeof(struct ethhdr), &ip, sizeof(ip),
				   BPF_F_RECOMPUTE_CSUM | BPF_F_INVALIDATE_HASH);
}

/* UDP and all of GUE. */
struct gue_whole {
	struct gue_front front;
	struct gue_rest rest;
};

/* Bytes of UDP and GUE, with the other backend's tunnel if the packet is to name one. */
static __always_inline __u32 forward_gue_bytes(const struct rx_ctx *a)
{
	if (a->hop.step == GUE_CHAIN_NONE)
		return sizeof(struct gue_whole) - 4 * sizeof(__u32);
	return sizeof(struct gue_whole) - (address_is_v4(&a->hop.other) ? 3 * sizeof(__u32) : 0);
}

static __noinline int forward_write_gue(struct __sk_buff *skb, const struct rx_ctx *a, __u32 at)
{
	struct gue_whole gue = {
		.front.udp.source = a->tunnel.entropy,
		.front.udp.dest = bpf_htons(GUE_PORT),
		.front.gue.head = GUE_OTHER_V6_WORDS,
		.front.gue.protocol = a->tunnel.protocol,
		.rest.weir.version = GUE_WEIR_VERSION,
		.rest.weir.step = a->hop.step,
		.rest.weir.kind = a->hop.kind,
		.rest.weir.source_port = a->tunnel.source_port,
		.rest.weir.destination_port = a->tunnel.destination_port,
	};
	const __u32 none = sizeof(gue) - 4 * sizeof(__u32), v4 = none + sizeof(__u32);
	__u32 bytes = forward_gue_bytes(a);

	__builtin_memcpy(gue.rest.other, &a->hop.other, sizeof(gue.rest.other));
	if (bytes == v4) {
		gue.front.gue.head = GUE_OTHER_V4_WORDS;
		gue.rest.other[0] = a->hop.other.words[3];
	} else if (bytes == none) {
		gue.front.gue.head = GUE_WEIR_WORDS;
	}
	gue.front.udp.len = bpf_htons(bytes + a->tunnel.payload);
	if (bytes > sizeof(gue)) /* never */
		return -1;
	return bpf_skb_store_bytes(skb, at, &gue, bytes,
				   BPF_F_RECOMPUTE_CSUM | BPF_F_INVALIDATE_HASH);
}

/*
 * From the tunnel that the packet came to, or if that is of another family, from the host. An enum
 * verdict, NONE: it is on its way. Not static: the verifier looks at it once.
 */
__noinline int forward(struct __sk_buff *skb, const struct rx_ctx *a __arg_nonnull)
{
	bool v4 = address_is_v4(&a->hop.to);
	__be16 family = v4 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
	__u32 ip = v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	struct address source = a->outer.destination;
	__u32 gue = forward_gue_bytes(a);
	int err;

	if (address_is_v4(&source) != v4) {
		source = v4 ? settings.address4 : settings.address6;
		if (!address_is_set(&source))
			return VERDICT_DROP_CHAIN_FAMILY;
	}

	/* From here on the packet is touched: fail closed. */
	if (forward_make_room(skb, a->outer.ethertype, family, ip + gue - a->tunnel.header))
		return VERDICT_DROP_CHAIN;
	err = v4 ? forward_write_v4(skb, a, source.words[3], gue + a->tunnel.payload)
		 : forward_write_v6(skb, a, &source, gue + a->tunnel.payload);
	if (err || forward_write_gue(skb, a, sizeof(struct ethhdr) + ip))
		return VERDICT_DROP_CHAIN;
	return VERDICT_NONE;
}
