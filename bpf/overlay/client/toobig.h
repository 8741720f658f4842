/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The answer to a client whose packet the uplink does not take once it is encapsulated: ICMP
 * "fragmentation needed" (RFC 1191), ICMPv6 "packet too big" (RFC 4443), in the VIP's name. A
 * server gets it in its client's name.
 */
#pragma once

#include "overlay/deliver.h"
#include "overlay/encapsulate.h"

/* Of the transport the answer quotes so many bytes: TCP's fixed header. */
enum { TOO_BIG_QUOTE = 20, TOO_BIG4 = 0x0304, TOO_BIG6 = 0x0200 };

struct too_big {
	__be16 type; /* and code */
	__sum16 checksum;
	__be32 mtu;
};

struct too_big_v4 {
	struct iphdr ip;
	struct too_big icmp;
};

struct too_big_v6 {
	struct ipv6hdr ip;
	struct too_big icmp;
};

/*
 * What of the uplink's MTU is left. Muxes put a header before datagrams, and send them on by IPv6
 * where the server's host takes VXLAN by that; a flow may come back to the muxes at any time.
 */
static __always_inline __u32 client_room(const struct overlay_ctx *a)
{
	if (a->inner.protocol == IPPROTO_UDP)
		return settings.mtu - OVERLAY_OVERHEAD6 - sizeof(struct bypass_header);
	return settings.mtu - overlay_overhead(&a->path.to);
}

/* Is a packet, or are the segments that it is to be cut into, too large for the uplink? */
static __always_inline bool is_too_big(struct __sk_buff *skb, const struct overlay_ctx *a)
{
	__u32 length = a->inner.l3_length, header = sizeof(struct udphdr);

	if (skb->gso_size) {
		if (a->inner.protocol == IPPROTO_TCP)
			header = a->head.tcp.doff * 4;
		length = a->inner.l4 - a->inner.l3 + header + skb->gso_size;
	}
	return length > a->room;
}

static __always_inline __u16 fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/*
 * The sum of the transport header that is quoted, at l4, which is the frame's end. Its checksum may
 * be one that the device is yet to fill in, which no program can see or undo. So there is put one
 * that stays what it is if that happens, half of the sum of all else: x = ~(rest + x). It is at
 * bytes behind l4.
 */
static __noinline __s64 too_big_quote(struct __sk_buff *skb, __u32 l4, __u32 at)
{
	__be32 quote[TOO_BIG_QUOTE / 4];
	__s64 sum;
	__u16 half;

	half = 0;
	if (bpf_skb_store_bytes(skb, l4 + at, &half, sizeof(half), 0) ||
	    bpf_skb_load_bytes(skb, l4, quote, sizeof(quote)))
		return -1;
	sum = bpf_csum_diff(NULL, 0, quote, sizeof(quote), 0);
	half = ~fold(sum);
	half = half >> 1 | half << 15; /* modulo 65535 that is divided by two */
	if (bpf_skb_store_bytes(skb, l4 + at, &half, sizeof(half), 0))
		return -1;
	return sum + half;
}

static __noinline int too_big_v4(struct __sk_buff *skb, const struct overlay_ctx *a, __s64 sum)
{
	struct too_big_v4 t = {};

	t.ip.version = 4;
	t.ip.ihl = 5;
	t.ip.tot_len = bpf_htons(sizeof(t) + sizeof(struct iphdr) + TOO_BIG_QUOTE);
	t.ip.ttl = OVERLAY_TTL;
	t.ip.protocol = IPPROTO_ICMP;
	t.ip.saddr = a->inner.destination.words[3];
	t.ip.daddr = a->inner.source.words[3];
	t.ip.check = encapsulate_checksum(&t.ip);
	t.icmp.type = bpf_htons(TOO_BIG4);
	t.icmp.mtu = bpf_htonl(a->room);
	/* The IP header that is quoted has a checksum of its own, so its sum is none. */
	sum += bpf_csum_diff(NULL, 0, (__be32 *)&t.icmp, sizeof(t.icmp), 0);
	t.icmp.checksum = ~fold(sum);
	if (bpf_skb_adjust_room(skb, sizeof(t), BPF_ADJ_ROOM_MAC, 0))
		return -1;
	return bpf_skb_store_bytes(skb, sizeof(struct ethhdr), &t, sizeof(t), 0);
}

static __noinline int too_big_v6(struct __sk_buff *skb, const struct overlay_ctx *a, __s64 sum)
{
	__be32 rest[2] = { bpf_htonl(sizeof(struct too_big) + sizeof(struct ipv6hdr) +
				     TOO_BIG_QUOTE),
			   bpf_htonl(IPPROTO_ICMPV6) };
	struct too_big_v6 t = {};
	struct ipv6hdr quote;

	if (bpf_skb_load_bytes(skb, sizeof(struct ethhdr), &quote, sizeof(quote)))
		return -1;
	*(__be32 *)&t.ip = bpf_htonl(6U << 28);
	t.ip.payload_len = rest[0] >> 16;
	t.ip.nexthdr = IPPROTO_ICMPV6;
	t.ip.hop_limit = OVERLAY_TTL;
	__builtin_memcpy(&t.ip.saddr, &a->inner.destination, sizeof(t.ip.saddr));
	__builtin_memcpy(&t.ip.daddr, &a->inner.source, sizeof(t.ip.daddr));
	t.icmp.type = bpf_htons(TOO_BIG6);
	t.icmp.mtu = bpf_htonl(a->room);
	sum += bpf_csum_diff(NULL, 0, (__be32 *)&t.ip.saddr, sizeof(t) - 8, 0);
	sum += bpf_csum_diff(NULL, 0, rest, sizeof(rest), 0);
	sum += bpf_csum_diff(NULL, 0, (__be32 *)&quote, sizeof(quote), 0);
	t.icmp.checksum = ~fold(sum);
	if (bpf_skb_adjust_room(skb, sizeof(t), BPF_ADJ_ROOM_MAC, 0))
		return -1;
	return bpf_skb_store_bytes(skb, sizeof(struct ethhdr), &t, sizeof(t), 0);
}

static __noinline enum verdict answer_too_big(struct __sk_buff *skb, const struct overlay_ctx *a)
{
	bool v4 = a->inner.ethertype == bpf_htons(ETH_P_IP), tcp = a->inner.protocol == IPPROTO_TCP;
	const __u32 l4 =
		sizeof(struct ethhdr) + (v4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr));
	bool udp = a->inner.protocol == IPPROTO_UDP;
	bool fragment = a->parsed == PARSED_FRAGMENT && !a->inner.fragment_offset && udp;
	__u32 front = fragment && !v4 ? sizeof(struct extension) : 0;
	__u8 macs[12];
	__s64 sum;

	/* What has options, other extension headers or another transport is not worth the code. */
	if ((a->parsed != PARSED_OK && !fragment) || a->inner.l4 != l4 + front || (!tcp && !udp))
		return VERDICT_DROP_TOO_BIG;
	__builtin_memcpy(macs, a->path.from_mac, 6);
	__builtin_memcpy(macs + 6, a->path.to_mac, 6);
	if (bpf_skb_change_tail(skb, l4 + TOO_BIG_QUOTE, 0))
		return VERDICT_DROP_REWRITE;
	sum = too_big_quote(skb, l4,
			    tcp ? offsetof(struct tcphdr, check)
				: front + offsetof(struct udphdr, check));
	if (sum < 0 || (v4 ? too_big_v4(skb, a, sum) : too_big_v6(skb, a, sum)) ||
	    bpf_skb_store_bytes(skb, 0, macs, sizeof(macs), 0))
		return VERDICT_DROP_REWRITE;
	return VERDICT_ANSWER_TOO_BIG;
}
