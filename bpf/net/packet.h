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

#include "abi/shared/address.h"

#define V4_MAPPED_PREFIX bpf_htonl(0x0000ffff)

enum tcp_flag {
	TCP_FLAG_FIN = 0x01,
	TCP_FLAG_SYN = 0x02,
	TCP_FLAG_RST = 0x04,
	TCP_FLAG_ACK = 0x10,
};

enum parsed {
	PARSED_OK = 0,
	PARSED_OTHER, /* neither TCP nor UDP over IP */
	PARSED_EXTENSIONS, /* behind IPv6 extension headers: parse_extensions() goes on */
	PARSED_FRAGMENT, /* any fragment, the first one too; see struct packet */
	PARSED_MALFORMED, /* lengths and versions that contradict the frame */
};

/* How far IPv6 extension headers are followed; what lies behind more is PARSED_OTHER. */
enum {
	EXTENSIONS_MAX = 4,
	EXTENSIONS_BYTES = 128,
	EXTENSIONS_START_MAX = 1024, /* for the verifier: no offset of ours comes near */
	FRAGMENT_BITS = 0xfff9, /* of the fragment header's word: offset, and more */
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
	__u8 protocol; /* IPPROTO_*, of what stands at l4 */
	__u8 tos; /* DSCP and ECN */
	__u8 tcp_flags; /* enum tcp_flag; 0 when not TCP */
	bool dont_fragment; /* IPv4 only */

	/* Of a fragment only: set with PARSED_FRAGMENT, else not to be read. */
	bool fragment_more; /* others follow */
	__u16 fragment_offset; /* bytes; 0: the first one, so a transport header may stand at l4 */
	__u32 fragment_id; /* as on the wire; of IPv4 the upper half is 0 */
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

static __always_inline bool address_equal(const struct address *a, const struct address *b)
{
	return a->words[0] == b->words[0] && a->words[1] == b->words[1] &&
	       a->words[2] == b->words[2] && a->words[3] == b->words[3];
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
	address_from_v4(&p->source, ip->saddr);
	address_from_v4(&p->destination, ip->daddr);
	p->protocol = ip->protocol;
	p->tos = ip->tos;
	p->l4 = p->l3 + header;
	p->dont_fragment = ip->frag_off & bpf_htons(0x4000);
	if (ip->frag_off & bpf_htons(0x3fff)) { /* more fragments, or an offset */
		p->fragment_more = ip->frag_off & bpf_htons(0x2000);
		p->fragment_offset = (bpf_ntohs(ip->frag_off) & 0x1fff) << 3;
		p->fragment_id = ip->id;
		return PARSED_FRAGMENT;
	}
	return PARSED_OK;
}

static __always_inline bool protocol_is_extension(__u8 protocol)
{
	return protocol == IPPROTO_HOPOPTS || protocol == IPPROTO_ROUTING ||
	       protocol == IPPROTO_FRAGMENT || protocol == IPPROTO_DSTOPTS;
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
	__builtin_memcpy(&p->source, &ip->saddr, sizeof(p->source));
	__builtin_memcpy(&p->destination, &ip->daddr, sizeof(p->destination));
	if (address_is_v4(&p->source) || address_is_v4(&p->destination))
		return PARSED_MALFORMED; /* not on a wire: here it would pass for IPv4 */
	p->protocol = ip->nexthdr;
	p->tos = first >> 4;
	p->l4 = p->l3 + sizeof(*ip);
	if (protocol_is_extension(p->protocol))
		return PARSED_EXTENSIONS;
	return PARSED_OK;
}

struct extension {
	__u8 next;
	__u8 length; /* in 8 bytes, less the first 8; 0 in a fragment header */
	__be16 fragment; /* fragment header: offset in 8 bytes, two reserved bits, more */
	__be32 id; /* fragment header */
};

/* Where a walk over extension headers ended. */
struct extensions {
	enum parsed parsed;
	__u8 protocol;
	__u16 l4;
	__u16 fragment; /* word of the fragment header, 0 without one */
	__u32 id;
};

/* One header; false when the walk ends in front of it. Reads that of the fragment, too. */
static __always_inline bool extension_skip(void *data, void *end, __u32 stop, struct extensions *x)
{
	__u32 at = x->l4, length = sizeof(struct extension);
	struct extension *header;

	if (!protocol_is_extension(x->protocol))
		return false;
	x->parsed = PARSED_MALFORMED;
	barrier_var(at);
	if (at > EXTENSIONS_START_MAX + EXTENSIONS_BYTES)
		return false;
	header = data + at;
	if ((void *)(header + 1) > end)
		return false;
	/* On its way to other nodes still: its last destination is not the one we see. */
	if (x->protocol == IPPROTO_ROUTING && bpf_ntohs(header->fragment) & 0xff) {
		x->parsed = PARSED_OTHER;
		return false;
	}
	if (x->protocol == IPPROTO_FRAGMENT) {
		x->fragment = bpf_ntohs(header->fragment);
		x->id = header->id;
	} else {
		length += header->length * 8;
	}
	if (at + length > stop) {
		x->parsed = PARSED_OTHER;
		return false;
	}
	x->protocol = header->next;
	x->l4 = at + length;
	x->parsed = PARSED_OK;
	/* Behind the header of a fragment: not in the others of its datagram. */
	return !(x->fragment & FRAGMENT_BITS);
}

/* Follows the extension headers of a chain that begins with x. */
static __always_inline void extensions_walk(void *data, void *end, struct extensions *x)
{
	__u32 stop = x->l4 + EXTENSIONS_BYTES;

	for (int i = 0; i < EXTENSIONS_MAX; i++)
		if (!extension_skip(data, end, stop, x))
			break;
}

/* Takes over what the walk found. A fragment of its own, offset 0 and no more, is none (RFC 6946).
 */
static __always_inline enum parsed extensions_end(const struct extensions *x, struct packet *p)
{
	if (x->parsed != PARSED_OK)
		return x->parsed;
	p->protocol = x->protocol;
	p->l4 = x->l4;
	if (p->l4 > p->l3 + p->l3_length)
		return PARSED_MALFORMED;
	if (x->fragment & FRAGMENT_BITS) {
		p->fragment_more = x->fragment & 1;
		p->fragment_offset = x->fragment & 0xfff8;
		p->fragment_id = x->id;
		return PARSED_FRAGMENT;
	}
	return protocol_is_extension(p->protocol) ? PARSED_OTHER : PARSED_OK;
}

/*
 * Goes on behind an IPv6 header where parse_ip has said PARSED_EXTENSIONS: sets protocol and l4,
 * and what is known of the fragment. Not for the fast path.
 */
static __always_inline enum parsed parse_extensions(void *data, void *end, struct packet *p)
{
	struct extensions x = { .protocol = p->protocol, .l4 = p->l4 };

	extensions_walk(data, end, &x);
	return extensions_end(&x, p);
}

/* Does the frame hold all of what the IP header says? To be asked once parse_ip has found one. */
static __always_inline bool packet_is_whole(const struct packet *p)
{
	return p->l3 + p->l3_length <= p->limit;
}

/* The caller asks packet_is_whole(), for it knows the frame's true length. */
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

/* The TCP or UDP header at l4, of a whole packet or of its first fragment. */
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

/* The same where l4 came through memory, and the verifier has lost its bounds. */
static __always_inline enum parsed parse_transport_full(void *data, void *end, struct packet *p)
{
	__u32 l4 = p->l4;

	barrier_var(l4);
	if (l4 > EXTENSIONS_START_MAX)
		return PARSED_MALFORMED;
	p->l4 = l4;
	return parse_transport(data, end, p);
}
