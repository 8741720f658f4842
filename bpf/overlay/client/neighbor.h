/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Answers to clients that ask for the Ethernet address of a VIP on their subnet: ARP (RFC 826) and
 * neighbor discovery (RFC 4861). VIPs have the gateway's.
 */
#pragma once

#include "overlay/maps.h"

/* ARP for IPv4 over Ethernet. */
struct arp_ipv4 {
	__be16 hardware;
	__be16 protocol;
	__u8 hardware_length;
	__u8 protocol_length;
	__be16 operation;
	__u8 sender_mac[6];
	__u8 sender[4];
	__u8 target_mac[6];
	__u8 target[4];
};

_Static_assert(sizeof(struct arp_ipv4) == 28, "arp_ipv4");

enum { ARP_ETHERNET = 1, ARP_REQUEST = 1, ARP_REPLY = 2 };

enum {
	ND_SOLICITATION = 135,
	ND_ADVERTISEMENT = 136,
	ND_HOP_LIMIT = 255,
	ND_TARGET_MAC = 2, /* option */
	ND_SOLICITED = 0x40000000,
	ND_OVERRIDE = 0x20000000,
};

/* Both messages begin with this. */
struct nd_message {
	__u8 type;
	__u8 code;
	__sum16 checksum;
	__be32 flags;
	struct address target;
};

/* The answer, from the IP header on. */
struct nd_answer {
	struct ipv6hdr ip;
	struct nd_message nd;
	__u8 option;
	__u8 option_length; /* in 8 bytes */
	__u8 mac[6];
};

_Static_assert(sizeof(struct nd_answer) == 72, "nd_answer");

/* The Ethernet address of a VIP in the port's network; false: it is none. */
static __always_inline bool vip_mac(const struct overlay_ctx *a, const struct address *vip,
				    __u8 *mac)
{
	struct network_address key = { .vni = a->path.vni, .address = *vip };
	const __u32 *number = bpf_map_lookup_elem(&network_vips, &key);
	const struct overlay_attachment *attachment =
		number ? bpf_map_lookup_elem(&attachments, number) : NULL;

	if (!attachment || attachment->vni != a->path.vni)
		return false;
	__builtin_memcpy(mac, attachment->gateway_mac, 6);
	return true;
}

static __noinline enum verdict answer_arp(struct __sk_buff *skb, const struct overlay_ctx *a)
{
	struct arp_ipv4 arp, out;
	struct ethhdr eth;
	struct address vip;
	__be32 target;
	__u8 mac[6];

	if (skb->vlan_present || bpf_skb_load_bytes(skb, 0, &eth, sizeof(eth)) ||
	    bpf_skb_load_bytes(skb, sizeof(eth), &arp, sizeof(arp)))
		return VERDICT_PASS_OTHER;
	if (arp.hardware != bpf_htons(ARP_ETHERNET) || arp.protocol != bpf_htons(ETH_P_IP) ||
	    arp.hardware_length != 6 || arp.protocol_length != 4 ||
	    arp.operation != bpf_htons(ARP_REQUEST))
		return VERDICT_PASS_OTHER;
	__builtin_memcpy(&target, arp.target, sizeof(target));
	address_from_v4(&vip, target);
	if (!vip_mac(a, &vip, mac))
		return VERDICT_PASS_NOT_A_VIP;
	out = arp;
	out.operation = bpf_htons(ARP_REPLY);
	__builtin_memcpy(out.sender_mac, mac, 6);
	__builtin_memcpy(out.sender, arp.target, 4);
	__builtin_memcpy(out.target_mac, arp.sender_mac, 6);
	__builtin_memcpy(out.target, arp.sender, 4);
	__builtin_memcpy(eth.h_dest, eth.h_source, 6);
	__builtin_memcpy(eth.h_source, mac, 6);
	if (bpf_skb_store_bytes(skb, 0, &eth, sizeof(eth), 0) ||
	    bpf_skb_store_bytes(skb, sizeof(eth), &out, sizeof(out), BPF_F_RECOMPUTE_CSUM))
		return VERDICT_DROP_REWRITE;
	return VERDICT_ANSWER_ARP;
}

/* The checksum of an ICMPv6 message that follows its IP header. */
static __always_inline __sum16 nd_checksum(const struct nd_answer *n)
{
	__be32 rest[2] = { bpf_htonl(sizeof(*n) - sizeof(n->ip)), bpf_htonl(IPPROTO_ICMPV6) };
	__s64 sum = bpf_csum_diff(NULL, 0, rest, sizeof(rest), 0);

	sum = bpf_csum_diff(NULL, 0, (__be32 *)&n->ip.saddr, sizeof(*n) - 8, sum);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* Who asks so without an address wants to know whether the VIP's is free: all are told. */
static __always_inline void nd_write(struct nd_answer *n, const struct nd_message *in,
				     struct in6_addr to, const __u8 *mac)
{
	bool anonymous = !(to.in6_u.u6_addr32[0] | to.in6_u.u6_addr32[1] | to.in6_u.u6_addr32[2] |
			   to.in6_u.u6_addr32[3]);

	if (anonymous) {
		to.in6_u.u6_addr32[0] = bpf_htonl(0xff020000);
		to.in6_u.u6_addr32[3] = bpf_htonl(1);
	}
	*(__be32 *)&n->ip = bpf_htonl(6U << 28);
	n->ip.payload_len = bpf_htons(sizeof(*n) - sizeof(n->ip));
	n->ip.nexthdr = IPPROTO_ICMPV6;
	n->ip.hop_limit = ND_HOP_LIMIT;
	__builtin_memcpy(&n->ip.saddr, &in->target, sizeof(n->ip.saddr));
	n->ip.daddr = to;
	n->nd.type = ND_ADVERTISEMENT;
	n->nd.flags = bpf_htonl(anonymous ? ND_OVERRIDE : ND_SOLICITED | ND_OVERRIDE);
	n->nd.target = in->target;
	n->option = ND_TARGET_MAC;
	n->option_length = 1;
	__builtin_memcpy(n->mac, mac, 6);
	n->nd.checksum = nd_checksum(n);
}

/* Of an IPv6 packet. VERDICT_NONE: it asks for no VIP. */
static __noinline enum verdict answer_nd(struct __sk_buff *skb, const struct overlay_ctx *a)
{
	const __u32 l4 = sizeof(struct ethhdr) + sizeof(struct ipv6hdr);
	struct nd_answer n = {};
	struct nd_message in;
	struct ipv6hdr ip;
	struct ethhdr eth;
	__u8 mac[6];

	if (frame_is_tagged(skb) || bpf_skb_load_bytes(skb, sizeof(eth), &ip, sizeof(ip)) ||
	    ip.nexthdr != IPPROTO_ICMPV6 || ip.hop_limit != ND_HOP_LIMIT)
		return VERDICT_NONE;
	if (bpf_skb_load_bytes(skb, 0, &eth, sizeof(eth)) ||
	    bpf_skb_load_bytes(skb, l4, &in, sizeof(in)) || in.type != ND_SOLICITATION || in.code ||
	    address_is_v4(&in.target) || !vip_mac(a, &in.target, mac))
		return VERDICT_NONE;
	nd_write(&n, &in, ip.saddr, mac);
	__builtin_memcpy(eth.h_dest, eth.h_source, 6);
	__builtin_memcpy(eth.h_source, mac, 6);
	if (bpf_skb_change_tail(skb, sizeof(eth) + sizeof(n), 0) ||
	    bpf_skb_store_bytes(skb, 0, &eth, sizeof(eth), 0) ||
	    bpf_skb_store_bytes(skb, sizeof(eth), &n, sizeof(n), BPF_F_RECOMPUTE_CSUM))
		return VERDICT_DROP_REWRITE;
	return VERDICT_ANSWER_ND;
}
