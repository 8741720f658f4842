/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The floor that the mux is measured against: parses, pushes an outer header of the packet's
 * family made of constants, transmits. No map, no option, no choice. And a program that parses and
 * passes, for packets that are not for the mux.
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "net/xdp/encap.h"

static __always_inline void floor_ethernet(void *data, __be16 ethertype)
{
	*(__u64 *)data = 0x0202020202010101ULL;
	*(__u32 *)(data + 8) = 0x0b0b0b0b;
	*(__u16 *)(data + 12) = ethertype;
}

/* For packets of the protocol to the port. */
static __always_inline enum xdp_action floor_v4(struct xdp_md *ctx, const __u8 protocol,
						const __u16 port)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = data + sizeof(*eth);
	struct tcphdr *tcp = (void *)(ip + 1);
	__u32 length, tos, source, destination = bpf_htonl(0x0a000001);
	__u32 *to;
	__u64 sum;

	if ((void *)(tcp + 1) > end)
		return XDP_DROP;
	if (eth->h_proto != bpf_htons(ETH_P_IP) || *(__u8 *)ip != 0x45 ||
	    (ip->frag_off & bpf_htons(0x3fff)) || ip->protocol != protocol)
		return XDP_PASS;
	if (tcp->dest != bpf_htons(port))
		return XDP_PASS;
	length = bpf_ntohs(ip->tot_len) + sizeof(*ip);
	tos = ip->tos;
	source = ((ip->saddr ^ (__u32)tcp->source << 16) & 0xffff0000) | bpf_htonl(0xac100000);

	if (bpf_xdp_adjust_head(ctx, -(int)sizeof(*ip)))
		return XDP_DROP;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	to = data + sizeof(*eth);
	if ((void *)to + sizeof(*ip) > end)
		return XDP_DROP;
	floor_ethernet(data, bpf_htons(ETH_P_IP));
	to[0] = 0x45 | tos << 8 | (__u32)bpf_htons(length) << 16;
	to[1] = 0;
	sum = (__u64)(0x45 | tos << 8 | (__u32)bpf_htons(length) << 16) + (64 | IPPROTO_IPIP << 8) +
	      source + destination;
	to[2] = 64 | IPPROTO_IPIP << 8 | checksum_fold(sum) << 16;
	to[3] = source;
	to[4] = destination;
	return XDP_TX;
}

static __always_inline enum xdp_action floor_v6(struct xdp_md *ctx, const __u8 protocol,
						const __u16 port)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct ipv6hdr *ip = data + sizeof(*eth);
	struct tcphdr *tcp = (void *)(ip + 1);
	__be16 length;
	__u32 *to;

	if ((void *)(tcp + 1) > end)
		return XDP_DROP;
	if (eth->h_proto != bpf_htons(ETH_P_IPV6) || *(__u8 *)ip >> 4 != 6 ||
	    ip->nexthdr != protocol || tcp->dest != bpf_htons(port))
		return XDP_PASS;
	length = bpf_htons(bpf_ntohs(ip->payload_len) + sizeof(*ip));

	if (bpf_xdp_adjust_head(ctx, -(int)sizeof(*ip)))
		return XDP_DROP;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	to = data + sizeof(*eth);
	if ((void *)to + sizeof(*ip) > end)
		return XDP_DROP;
	floor_ethernet(data, bpf_htons(ETH_P_IPV6));
	to[0] = bpf_htonl(6U << 28);
	to[1] = length | IPPROTO_IPV6 << 16 | 64U << 24;
	*(__u64 *)(to + 2) = 0xfd;
	*(__u64 *)(to + 4) = 1ULL << 56;
	*(__u64 *)(to + 6) = 0xfd;
	*(__u64 *)(to + 8) = 2ULL << 56;
	return XDP_TX;
}

/* Parses as the mux does, with all that it finds out written down, and passes. */
static __always_inline enum xdp_action floor_pass(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct packet p = { .limit = end - data };

	if (parse_ethernet(data, end, &p) != PARSED_OK || parse_ip(data, end, &p) != PARSED_OK ||
	    parse_transport(data, end, &p) != PARSED_OK)
		return XDP_DROP;
	asm volatile("" : : "r"(&p) : "memory");
	return XDP_PASS;
}
