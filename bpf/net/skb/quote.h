/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ICMP errors in socket buffers, and the packet that they quote: reading it, and replacing
 * addresses. */
#pragma once

#include "net/quote.h"
#include "net/skb/rewrite.h"

enum { ICMP_HEADER = 8 };

static __always_inline bool icmp_holds_error(struct __sk_buff *skb, const struct packet *p)
{
	bool v4 = p->ethertype == bpf_htons(ETH_P_IP);
	__u8 type;

	if (p->protocol != (v4 ? IPPROTO_ICMP : IPPROTO_ICMPV6))
		return false;
	if (p->l4 + ICMP_HEADER > p->l3 + p->l3_length)
		return false;
	if (bpf_skb_load_bytes(skb, p->l4, &type, sizeof(type)))
		return false;
	return icmp_is_error(p, type);
}

/*
 * The quoted IP header; false if no ports follow it. Not by quote_parse(), which keeps the packet
 * in registers: the frame that it then needs is more than the stack of TC programs has left.
 */
static __always_inline bool icmp_read_ip(struct __sk_buff *skb, struct packet *quoted)
{
	union {
		struct iphdr v4;
		struct ipv6hdr v6;
	} ip = {};

	if (quoted->ethertype == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, quoted->l3, &ip.v4, sizeof(ip.v4)))
			return false;
		address_from_v4(&quoted->source, ip.v4.saddr);
		address_from_v4(&quoted->destination, ip.v4.daddr);
		quoted->protocol = ip.v4.protocol;
		quoted->l4 = quoted->l3 + ip.v4.ihl * 4;
		return ip.v4.version == 4 && ip.v4.ihl >= 5 &&
		       !(ip.v4.frag_off & bpf_htons(0x1fff));
	}
	if (bpf_skb_load_bytes(skb, quoted->l3, &ip.v6, sizeof(ip.v6)))
		return false;
	__builtin_memcpy(&quoted->source, &ip.v6.saddr, sizeof(quoted->source));
	__builtin_memcpy(&quoted->destination, &ip.v6.daddr, sizeof(quoted->destination));
	quoted->protocol = ip.v6.nexthdr;
	quoted->l4 = quoted->l3 + sizeof(ip.v6);
	if (quoted->protocol == IPPROTO_FRAGMENT) { /* of a first fragment, as of IPv4 */
		struct extension header;

		if (bpf_skb_load_bytes(skb, quoted->l4, &header, sizeof(header)) ||
		    header.fragment & bpf_htons(0xfff8))
			return false;
		quoted->protocol = header.next;
		quoted->l4 += sizeof(header);
	}
	return ip.v6.version == 6;
}

/* The IP header that an error p quotes; false if no ports follow it. */
static __always_inline bool quote_read_ip(struct __sk_buff *skb, const struct packet *p,
					  struct packet *quoted)
{
	quoted->ethertype = p->ethertype;
	quoted->l3 = p->l4 + ICMP_HEADER;
	quoted->tcp_flags = 0;
	return icmp_read_ip(skb, quoted);
}

/* The ports behind it, of TCP or UDP; false: of nothing else. */
static __always_inline bool quote_read_ports(struct __sk_buff *skb, const struct packet *p,
					     struct packet *quoted)
{
	struct {
		__be16 source;
		__be16 destination;
	} ports;

	if (quoted->protocol != IPPROTO_TCP && quoted->protocol != IPPROTO_UDP)
		return false;
	if (quoted->l4 + sizeof(ports) > p->l3 + p->l3_length ||
	    bpf_skb_load_bytes(skb, quoted->l4, &ports, sizeof(ports)))
		return false;
	quoted->source_port = ports.source;
	quoted->destination_port = ports.destination;
	return true;
}

/* The packet of TCP or UDP that an error p quotes: addresses, ports, protocol and offsets. */
static __always_inline bool quote_read(struct __sk_buff *skb, const struct packet *p,
				       struct packet *quoted)
{
	return quote_read_ip(skb, p, quoted) && quote_read_ports(skb, p, quoted);
}

/* One address in an IPv4 header. What changes in the header and its checksum adds up to nothing. */
static __always_inline int icmp_rewrite_v4(struct __sk_buff *skb, __u32 l3, enum side side,
					   __be32 from, __be32 to)
{
	__u32 at = l3 + offsetof(struct iphdr, saddr) + side * sizeof(to);
	int err;

	err = bpf_l3_csum_replace(skb, l3 + offsetof(struct iphdr, check), from, to, sizeof(to));
	return err ?: bpf_skb_store_bytes(skb, at, &to, sizeof(to), 0);
}

/* One address in an IPv6 header, that is in the pseudo-header or in the quote. */
static __always_inline int icmp_rewrite_v6(struct __sk_buff *skb, const struct packet *p, __u32 l3,
					   enum side side, const struct address *from,
					   const struct address *to)
{
	__u64 flags = l3 == p->l3 ? BPF_F_PSEUDO_HDR | BPF_F_IPV6 : 0;
	__u32 at = l3 + offsetof(struct ipv6hdr, saddr) + side * sizeof(*to);
	__s64 difference;
	int err;

	difference = bpf_csum_diff((__be32 *)from, sizeof(*from), (__be32 *)to, sizeof(*to), 0);
	if (difference < 0)
		return difference;
	err = bpf_l4_csum_replace(skb, p->l4 + 2, 0, difference, flags);
	return err ?: bpf_skb_store_bytes(skb, at, to, sizeof(*to), 0);
}
