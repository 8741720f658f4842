/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The parser: fills a struct packet once; nothing after it derives an offset again.
 * It reads through (data, end) only, so XDP and TC programs share it. Lengths are held against
 * packet.limit, not end: a socket buffer's payload need not lie behind its headers.
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "abi/address.h"

#define V4_MAPPED_PREFIX bpf_htonl(0x0000ffff)

enum tcp_flag {
	TCP_FLAG_FIN = 0x01,
	TCP_FLAG_SYN = 0x02,
	TCP_FLAG_RST = 0x04,
	TCP_FLAG_ACK = 0x10,
};

enum parsed {
	PARSED_OK = 0,
	PARSED_OTHER, /* neither TCP nor UDP over IP, or behind IPv6 extension headers */
	PARSED_FRAGMENT, /* any fragment, the first one too */
	PARSED_MALFORMED, /* lengths and versions that contradict the frame */
};

struct packet {
	struct address source;
	struct address destination;
	__u16 l3; /* offset of the IP header from the frame's first byte */
	__u16 l4; /* offset of the transport header */
	__u32 l3_length; /* bytes, IP header included, as the IP header says */
	__u32 limit; /* offset that no packet may reach beyond: the frame's length */
	__be16 source_port; /* as on the wire */
	__be16 destination_port;
	__be16 ethertype; /* of the IP header: ETH_P_IP or ETH_P_IPV6 */
	__u8 protocol; /* IPPROTO_*, of what follows the IP header */
	__u8 tos; /* DSCP and ECN */
	__u8 tcp_flags; /* enum tcp_flag; 0 when not TCP */
};

struct vlan_header {
	__be16 tci;
	__be16 ethertype;
};

static __always_inline void address_from_v4(struct address *to, __be32 v4)
{
	to->words[0] = 0;
	to->words[1] = 0;
	to->words[2] = V4_MAPPED_PREFIX;
	to->words[3] = v4;
}

static __always_inline bool address_is_v4(const struct address *a)
{
	return a->words[0] == 0 && a->words[1] == 0 && a->words[2] == V4_MAPPED_PREFIX;
}

static __always_inline bool address_is_set(const struct address *a)
{
	return a->words[0] | a->words[1] | a->words[2] | a->words[3];
}

static __always_inline bool ethertype_is_vlan(__be16 ethertype)
{
	return ethertype == bpf_htons(ETH_P_8021Q) || ethertype == bpf_htons(ETH_P_8021AD);
}

/* Skips Ethernet and up to two VLAN tags: sets l3, ethertype, and limit to the bytes at hand. */
static __always_inline enum parsed parse_ethernet(void *data, void *end, struct packet *p)
{
	struct ethhdr *eth = data;
	__be16 ethertype;
	__u16 l3 = sizeof(*eth);

	p->limit = end - data;
	if ((void *)(eth + 1) > end)
		return PARSED_MALFORMED;
	ethertype = eth->h_proto;
#pragma unroll
	for (int tags = 0; tags < 2; tags++) {
		struct vlan_header *vlan = data + l3;

		if (!ethertype_is_vlan(ethertype))
			break;
		if ((void *)(vlan + 1) > end)
			return PARSED_MALFORMED;
		ethertype = vlan->ethertype;
		l3 += sizeof(*vlan);
	}
	p->l3 = l3;
	p->ethertype = ethertype;
	return PARSED_OK;
}

static __always_inline enum parsed parse_ipv4(void *data, void *end, struct packet *p)
{
	struct iphdr *ip = data + p->l3;
	__u32 header;

	if ((void *)(ip + 1) > end)
		return PARSED_MALFORMED;
	header = ip->ihl * 4;
	p->l3_length = bpf_ntohs(ip->tot_len);
	if (ip->version != 4 || header < sizeof(*ip) || p->l3_length < header)
		return PARSED_MALFORMED;
	if (p->l3 + p->l3_length > p->limit)
		return PARSED_MALFORMED;
	address_from_v4(&p->source, ip->saddr);
	address_from_v4(&p->destination, ip->daddr);
	p->protocol = ip->protocol;
	p->tos = ip->tos;
	p->l4 = p->l3 + header;
	if (ip->frag_off & bpf_htons(0x3fff)) /* more fragments, or an offset */
		return PARSED_FRAGMENT;
	return PARSED_OK;
}

static __always_inline enum parsed parse_ipv6(void *data, void *end, struct packet *p)
{
	struct ipv6hdr *ip = data + p->l3;
	__u16 first;

	if ((void *)(ip + 1) > end)
		return PARSED_MALFORMED;
	first = bpf_ntohs(*(__be16 *)ip);
	p->l3_length = bpf_ntohs(ip->payload_len) + sizeof(*ip);
	if (first >> 12 != 6)
		return PARSED_MALFORMED;
	if (p->l3 + p->l3_length > p->limit)
		return PARSED_MALFORMED;
	__builtin_memcpy(&p->source, &ip->saddr, sizeof(p->source));
	__builtin_memcpy(&p->destination, &ip->daddr, sizeof(p->destination));
	if (address_is_v4(&p->source) || address_is_v4(&p->destination))
		return PARSED_MALFORMED; /* not on a wire: here it would pass for IPv4 */
	p->protocol = ip->nexthdr;
	p->tos = first >> 4;
	p->l4 = p->l3 + sizeof(*ip);
	if (p->protocol == IPPROTO_FRAGMENT)
		return PARSED_FRAGMENT;
	return PARSED_OK;
}

static __always_inline enum parsed parse_ip(void *data, void *end, struct packet *p)
{
	if (p->ethertype == bpf_htons(ETH_P_IP))
		return parse_ipv4(data, end, p);
	if (p->ethertype == bpf_htons(ETH_P_IPV6))
		return parse_ipv6(data, end, p);
	return PARSED_OTHER;
}

/* What TCP and UDP begin with. */
struct ports {
	__be16 source;
	__be16 destination;
	__u32 rest;
};

/* The TCP or UDP header at l4, once parse_ip has said PARSED_OK. */
static __always_inline enum parsed parse_transport(void *data, void *end, struct packet *p)
{
	struct ports *ports = data + p->l4;
	__u32 header = sizeof(struct udphdr);

	barrier_var(ports); /* else it is derived again, and the verifier loses its bounds */
	p->tcp_flags = 0;
	if (p->protocol != IPPROTO_TCP && p->protocol != IPPROTO_UDP)
		return PARSED_OTHER;
	if ((void *)(ports + 1) > end)
		return PARSED_MALFORMED;
	p->source_port = ports->source;
	p->destination_port = ports->destination;
	if (p->protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = (void *)ports;

		if ((void *)(tcp + 1) > end)
			return PARSED_MALFORMED;
		header = tcp->doff * 4;
		if (header < sizeof(*tcp))
			return PARSED_MALFORMED;
		p->tcp_flags = ((__u8 *)tcp)[13];
	}
	if (p->l4 + header > p->l3 + p->l3_length)
		return PARSED_MALFORMED;
	return PARSED_OK;
}
