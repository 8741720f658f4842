/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ICMP errors (RFC 792, RFC 4443) and the packet that they quote. */
#pragma once

#include "net/packet.h"

enum {
	ICMP_ECHO_REPLY = 0,
	ICMP_UNREACHABLE = 3,
	ICMP_ECHO = 8,
	ICMP_TIME_EXCEEDED = 11,
	ICMP_PARAMETER_PROBLEM = 12,
	ICMP_FRAGMENTATION_NEEDED = 4, /* a code of ICMP_UNREACHABLE */

	ICMPV6_TOO_BIG = 2,
	ICMPV6_ERROR_FIRST = 1,
	ICMPV6_ERROR_LAST = 4,
	ICMPV6_ERRORS = 127, /* and all types below it */
	ICMPV6_ECHO = 128,
	ICMPV6_ECHO_REPLY = 129,

	QUOTE_L3_MAX = 1024, /* for the verifier: no offset of ours comes near */
};

struct icmp_header {
	__u8 type;
	__u8 code;
	__sum16 checksum;
	__be32 rest;
};

/* Is it ICMP of the packet's own family? */
static __always_inline bool packet_is_icmp(const struct packet *p)
{
	return p->protocol == (p->ethertype == bpf_htons(ETH_P_IP) ? IPPROTO_ICMP : IPPROTO_ICMPV6);
}

/* The ICMP header of a packet of protocol ICMP or ICMPv6, or NULL. */
static __always_inline struct icmp_header *icmp_header(void *data, void *end,
						       const struct packet *p)
{
	__u32 l4 = p->l4;
	struct icmp_header *icmp;

	barrier_var(l4);
	if (l4 > QUOTE_L3_MAX || l4 + sizeof(*icmp) > p->l3 + p->l3_length)
		return NULL;
	if (!packet_is_icmp(p))
		return NULL;
	icmp = data + l4;
	return (void *)(icmp + 1) > end ? NULL : icmp;
}

/* Errors that quote a packet and concern its connection. */
static __always_inline bool icmp_is_error(const struct packet *p, __u8 type)
{
	if (p->ethertype == bpf_htons(ETH_P_IP))
		return type == ICMP_UNREACHABLE || type == ICMP_TIME_EXCEEDED ||
		       type == ICMP_PARAMETER_PROBLEM;
	return type >= ICMPV6_ERROR_FIRST && type <= ICMPV6_ERROR_LAST;
}

static __always_inline bool icmp_is_echo_reply(const struct packet *p, __u8 type)
{
	return type == (p->ethertype == bpf_htons(ETH_P_IP) ? ICMP_ECHO_REPLY : ICMPV6_ECHO_REPLY);
}

static __always_inline bool icmp_is_echo(const struct packet *p, __u8 type)
{
	return type == (p->ethertype == bpf_htons(ETH_P_IP) ? ICMP_ECHO : ICMPV6_ECHO);
}

/*
 * The packet that an ICMP error quotes: both addresses and both ports, l3 and l4, in the frame that
 * holds the error. Of an echo request the identifier stands for the source port, with 0 for the
 * other. The quote may be cut behind the first 8 bytes of its transport header; limit is where it
 * ends. PARSED_OTHER when its ports are not there to read.
 */
static __always_inline enum parsed quote_parse(void *data, void *end, const struct packet *error,
					       struct packet *quoted)
{
	__u32 l3 = error->l4 + sizeof(struct icmp_header), l4;
	enum parsed parsed;
	struct ports *ports;
	bool pinged;

	barrier_var(l3);
	if (l3 > QUOTE_L3_MAX)
		return PARSED_MALFORMED;
	quoted->l3 = l3;
	quoted->limit = error->l3 + error->l3_length;
	quoted->ethertype = error->ethertype;
	quoted->tcp_flags = 0;
	parsed = parse_ip(data, end, quoted);
	if (parsed == PARSED_EXTENSIONS)
		parsed = parse_extensions(data, end, quoted);
	if (parsed == PARSED_FRAGMENT && quoted->fragment_offset == 0)
		parsed = PARSED_OK;
	if (parsed != PARSED_OK)
		return parsed;
	pinged = packet_is_icmp(quoted);
	if (quoted->protocol != IPPROTO_TCP && quoted->protocol != IPPROTO_UDP && !pinged)
		return PARSED_OTHER;
	l4 = quoted->l4;
	barrier_var(l4);
	if (l4 > QUOTE_L3_MAX || l4 + sizeof(*ports) > quoted->limit)
		return PARSED_OTHER;
	ports = data + l4;
	if ((void *)(ports + 1) > end)
		return PARSED_OTHER;
	if (pinged) {
		if (!icmp_is_echo(error, ports->source & 0xff)) /* the type is the first byte */
			return PARSED_OTHER;
		quoted->source_port = ports->rest; /* the identifier */
		quoted->destination_port = 0;
		return PARSED_OK;
	}
	quoted->source_port = ports->source;
	quoted->destination_port = ports->destination;
	return PARSED_OK;
}
