/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the mux itself answers in the name of a VIP: echo, and packets that are too big. */
#pragma once

#include "net/xdp/checksum.h"
#include "net/xdp/encap.h"
#include "mux/ratelimit.h"
#include "mux/martian.h"
#include "net/xdp/frame.h"
#include "mux/punt.h"
#include "mux/ctx.h"
#include "net/quote.h"

enum {
	REPLY_TTL = 64,
	REPLY_TOS = 0xc0, /* of an error: network control (RFC 1812, section 4.3.2.5) */
	QUOTE_V4 = 548, /* bytes quoted at most: 576 in all (RFC 1812, section 4.3.2.3) */
	QUOTE_V6 = 1232, /* 1280 in all (RFC 4443, section 2.4) */
	MTU_V6_MIN = 1280,
};

/* Room for the largest outer header: GUE that names another backend. */
enum {
	ROOM_V4 = sizeof(struct iphdr) + sizeof(struct udphdr) + sizeof(struct gue) +
		  sizeof(struct gue_weir) + sizeof(struct address),
	ROOM_V6 = sizeof(struct ipv6hdr) + sizeof(struct udphdr) + sizeof(struct gue) +
		  sizeof(struct gue_weir) + sizeof(struct address),
	FRAGMENT_ROOM = ROOM_V6, /* to its owner, then to the backend's host */
};

static __always_inline void echo_v4(struct iphdr *ip, struct icmp_header *icmp)
{
	__be32 source = ip->saddr;
	__u16 *ttl = (__u16 *)&ip->ttl; /* and the protocol */
	__u16 from = *ttl, to = (from & 0xff00) | REPLY_TTL;

	ip->saddr = ip->daddr;
	ip->daddr = source;
	*ttl = to;
	ip->check = checksum_replace(ip->check, from, to);
	icmp->type = ICMP_ECHO_REPLY;
	icmp->checksum = checksum_replace(icmp->checksum, ICMP_ECHO, ICMP_ECHO_REPLY);
}

static __always_inline void echo_v6(struct ipv6hdr *ip, struct icmp_header *icmp)
{
	struct in6_addr source = ip->saddr;

	ip->saddr = ip->daddr;
	ip->daddr = source;
	ip->hop_limit = REPLY_TTL;
	icmp->type = ICMPV6_ECHO_REPLY;
	icmp->checksum = checksum_replace(icmp->checksum, ICMPV6_ECHO, ICMPV6_ECHO_REPLY);
}

/* Answers an echo request to a VIP, in the frame that it came in. */
static __always_inline enum verdict echo(struct xdp_md *ctx, const struct packet *p, bool answers)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct icmp_header *icmp = icmp_header(data, end, p);
	struct frame_head back;
	__u32 l3 = p->l3;

	barrier_var(l3);
	if (!icmp || l3 > ETH_HLEN_MAX)
		return VERDICT_PASS_MALFORMED;
	if (!answers || !source_is_host(p))
		return VERDICT_DROP_ECHO;
	if (!ratelimit(LIMIT_ECHO, &p->destination))
		return VERDICT_DROP_ECHO_LIMITED;
	if (p->ethertype == bpf_htons(ETH_P_IP)) {
		if (data + l3 + sizeof(struct iphdr) > end)
			return VERDICT_PASS_MALFORMED;
		echo_v4(data + l3, icmp);
	} else {
		if (data + l3 + sizeof(struct ipv6hdr) > end)
			return VERDICT_PASS_MALFORMED;
		echo_v6(data + l3, icmp);
	}
	if (!frame_head_load(ctx, &back))
		return VERDICT_DROP_ECHO;
	frame_head_turn(&back);
	return frame_head_store(ctx, p, &back) ? VERDICT_REPLY_ECHO : VERDICT_DROP_ECHO;
}

/* What an error about a packet begins with, by family. */
struct error_v4 {
	struct iphdr ip;
	struct icmp_header icmp;
};

struct error_v6 {
	struct ipv6hdr ip;
	struct icmp_header icmp;
};

static __always_inline void write_error_v4(struct error_v4 *e, const struct packet *p, __u32 quote,
					   __u32 mtu, __u64 sum)
{
	__be32 source = p->destination.words[3], destination = p->source.words[3];
	__u32 *ip = (__u32 *)e, length = sizeof(*e) + quote;
	__u32 head = 0x45 | REPLY_TOS << 8 | (__u32)bpf_htons(length) << 16;
	__u32 rest = REPLY_TTL | IPPROTO_ICMP << 8;
	__u32 kind = ICMP_UNREACHABLE | ICMP_FRAGMENTATION_NEEDED << 8;

	ip[0] = head;
	ip[1] = 0;
	ip[2] = rest | checksum_fold((__u64)head + rest + source + destination) << 16;
	ip[3] = source;
	ip[4] = destination;
	ip[5] = kind | checksum_fold(sum + kind + bpf_htonl(mtu)) << 16;
	ip[6] = bpf_htonl(mtu);
}

static __always_inline void write_error_v6(struct error_v6 *e, const struct packet *p, __u32 quote,
					   __u32 mtu, __u64 sum)
{
	__u32 *ip = (__u32 *)e, length = sizeof(struct icmp_header) + quote;

	sum += (__u64)bpf_htonl(length) + bpf_htonl(IPPROTO_ICMPV6) + ICMPV6_TOO_BIG +
	       bpf_htonl(mtu);
	ip[0] = bpf_htonl(6U << 28 | REPLY_TOS << 20);
	ip[1] = bpf_htons(length) | IPPROTO_ICMPV6 << 16 | (__u32)REPLY_TTL << 24;
#pragma unroll
	for (int i = 0; i < 4; i++) {
		ip[2 + i] = p->destination.words[i];
		ip[6 + i] = p->source.words[i];
		sum += (__u64)p->destination.words[i] + p->source.words[i];
	}
	ip[10] = ICMPV6_TOO_BIG | checksum_fold(sum) << 16;
	ip[11] = bpf_htonl(mtu);
}

/* Makes of the packet an error about it. */
static __always_inline enum verdict reply_too_big(struct xdp_md *ctx, const struct packet *p,
						  __u32 mtu)
{
	bool v4 = p->ethertype == bpf_htons(ETH_P_IP);
	__u32 most = v4 ? QUOTE_V4 : QUOTE_V6;
	__u32 quote = p->l3_length < most ? p->l3_length : most;
	__u32 head = v4 ? sizeof(struct error_v4) : sizeof(struct error_v6);
	struct frame_head back;
	void *data, *end, *to;
	__u64 sum;
	__u32 l3;

	if (!frame_head_load(ctx, &back))
		return VERDICT_DROP_TOO_BIG;
	frame_head_turn(&back);
	sum = checksum_frame(ctx, p->l3, quote);
	if (bpf_xdp_adjust_tail(ctx, (int)(p->l3 + quote) - (int)p->limit))
		return VERDICT_DROP_TOO_BIG;

	/* From here on the packet is changed. */
	if (bpf_xdp_adjust_head(ctx, -(int)head) || !frame_head_store(ctx, p, &back))
		return VERDICT_DROP_NO_HEADROOM;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	l3 = p->l3;
	barrier_var(l3);
	if (l3 > ETH_HLEN_MAX)
		return VERDICT_DROP_NO_HEADROOM;
	to = data + l3;
	barrier_var(to); /* one pointer, so that one check holds for all that is written */
	if (to + sizeof(struct error_v6) > end)
		return VERDICT_DROP_NO_HEADROOM;
	if (v4)
		write_error_v4(to, p, quote, mtu, sum);
	else
		write_error_v6(to, p, quote, mtu, sum);
	return VERDICT_REPLY_TOO_BIG;
}

/* May an ICMP error be sent about the packet? Not about ICMP errors (RFC 1122, section 3.2.2). */
static __always_inline bool may_send_error(struct xdp_md *ctx, const struct packet *p,
					   enum parsed parsed)
{
	struct icmp_header *header;

	if (parsed != PARSED_OK || !packet_is_icmp(p))
		return true;
	header = icmp_header((void *)(long)ctx->data, (void *)(long)ctx->data_end, p);
	return header && icmp_is_echo_reply(p, header->type);
}

/*
 * A packet for a VIP that exceeds the MTU once encapsulated: its sender gets an ICMP error, or, for
 * IPv4 without "don't fragment", user space splits it. Room is for the largest header on its way.
 */
__noinline int too_big(struct xdp_md *ctx, __u32 room)
{
	enum parsed parsed;
	struct packet p = {};
	__u32 mtu = settings.mtu > room ? settings.mtu - room : 0;
	bool v4;

	parsed = parse_full(ctx, &p);
	v4 = p.ethertype == bpf_htons(ETH_P_IP);
	if (parsed == PARSED_MALFORMED || !may_send_error(ctx, &p, parsed))
		return VERDICT_DROP_TOO_BIG;
	/*
	 * No such packet came by the wire: it is several that the kernel merged (GRO before generic
	 * XDP, TSO of a veth's other end). Its sender's packets are not too big: it is told
	 * nothing.
	 */
	if (p.l3_length > settings.mtu)
		return VERDICT_DROP_MERGED;
	if (v4 && !p.dont_fragment)
		return punt(ctx, &p, PUNT_SPLIT) ? VERDICT_PUNT_SPLIT : VERDICT_DROP_PUNT;
	if (v4 && parsed == PARSED_FRAGMENT && p.fragment_offset) /* RFC 1122, section 3.2.2 */
		return VERDICT_DROP_TOO_BIG;
	if (!ratelimit(LIMIT_ERROR, &p.destination))
		return VERDICT_DROP_TOO_BIG;
	if (!v4 && mtu < MTU_V6_MIN)
		mtu = MTU_V6_MIN;
	return reply_too_big(ctx, &p, mtu);
}
