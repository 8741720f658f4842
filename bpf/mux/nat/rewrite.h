/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What full NAT changes of a segment: its ends, and the MSS that a SYN announces. */
#pragma once

#include "mux/nat/maps.h"
#include "mux/overlay/push.h"
#include "net/tcp.h"

/* What VXLAN puts before a packet. */
static __always_inline __u32 nat_overhead(bool over_v6)
{
	return sizeof(struct vxlan_front) +
	       (over_v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
}

struct nat_options {
	__u8 bytes[64];
	__u32 length;
	__u32 at;
	__u32 found; /* offset of the MSS's value; 0: there is none */
};

/* Looks at one option. Returns 1 to end the walk. */
static long nat_option(__u64 i, struct nat_options *o)
{
	__u32 at = o->at, kind, size;

	(void)i;
	if (at + TCP_OPTION_MSS_LENGTH > o->length)
		return 1;
	kind = o->bytes[at & 63];
	size = o->bytes[(at + 1) & 63];
	if (kind == TCP_OPTION_NOP)
		size = 1;
	else if (kind == TCP_OPTION_END || size < 2)
		return 1;
	if (kind == TCP_OPTION_MSS) {
		o->found = size == TCP_OPTION_MSS_LENGTH ? at + 2 : 0;
		return 1;
	}
	o->at = at + size;
	return 0;
}

/*
 * Lowers the MSS that the SYN at l4 announces to at most most. Returns what the sum under TCP's
 * checksum grows by. A function of its own, which the verifier walks once.
 */
__noinline __u32 nat_clamp(struct xdp_md *ctx, __u32 l4, __u32 most)
{
	struct nat_options options = {};
	__u32 length, at;
	__u16 was, now;
	__u8 doff;

	if (bpf_xdp_load_bytes(ctx, l4 + 12, &doff, 1))
		return 0;
	length = (doff >> 4) * 4 - sizeof(struct tcphdr);
	if (length < 1 || length > TCP_OPTIONS_MAX ||
	    bpf_xdp_load_bytes(ctx, l4 + sizeof(struct tcphdr), options.bytes, length))
		return 0;
	options.length = length;
	if (!nat_option(0, &options)) /* mostly it is the first one */
		bpf_loop(TCP_OPTIONS_MAX, nat_option, &options, 0);
	at = options.found;
	was = options.bytes[at & 63] << 8 | options.bytes[(at + 1) & 63];
	if (!at || was <= most)
		return 0;
	now = bpf_htons(most);
	if (bpf_xdp_store_bytes(ctx, l4 + sizeof(struct tcphdr) + at, &now, sizeof(now)))
		return 0;
	/* At an odd offset its bytes are of two words. */
	was = at & 1 ? was : bpf_htons(was);
	now = at & 1 ? bpf_htons(now) : now;
	return (__u16)~was + (__u32)now;
}

/* The largest MSS whose segments fit from the mux to the client's host, and back. */
static __always_inline __u32 nat_mss(bool over_v6, const bool inner4)
{
	__u32 headers = nat_overhead(over_v6) + sizeof(struct tcphdr) +
			(inner4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr));

	return settings.mtu > headers ? settings.mtu - headers : 0xffff;
}

/* Ends that a segment gets. */
struct nat_ends {
	const struct address *from;
	const struct address *to;
	__be16 from_port;
	__be16 to_port;
};

/* Gives the segment, whose headers are loaded, its ends. Extra is what else has grown TCP's sum. */
static __always_inline void nat_rewrite(struct vxlan_ctx *v, const struct nat_ends *ends,
					__u32 extra, const bool inner4)
{
	const __u32 words = inner4 ? 1 : 4, first = inner4 ? 3 : 2;
	__u32 ports = ends->from_port | (__u32)ends->to_port << 16;
	__u64 sum = 0;

#pragma unroll
	for (__u32 i = 0; i < words; i++) {
		__u32 from = ends->from->words[inner4 ? 3 : i];
		__u32 to = ends->to->words[inner4 ? 3 : i];

		sum += (__u64)(__u32)~v->ip[first + i] + from;
		sum += (__u64)(__u32)~v->ip[first + words + i] + to;
		v->ip[first + i] = from;
		v->ip[first + words + i] = to;
	}
	if (inner4)
		v->ip[2] = (v->ip[2] & 0xffff) | checksum_fold(sum + (__u16) ~(v->ip[2] >> 16))
							 << 16;
	sum += (__u64)(__u32)~v->tcp[0] + ports + (__u16)~v->tcp[4] + extra;
	v->tcp[0] = ports;
	v->tcp[4] = (v->tcp[4] & 0xffff0000) | checksum_fold(sum);
}

/* Congestion that was met in VXLAN is told inside (RFC 6040). False: what is inside can't tell. */
static __always_inline bool nat_congestion(struct vxlan_ctx *v, const bool inner4)
{
	const __u32 shift = inner4 ? 16 : 20;
	__u32 was = v->ip[0], word = bpf_ntohl(was), is = word >> shift & 3, now = is;
	__u32 outer = v->outer.tos & 3;

	if (outer == 3 && !is)
		return false;
	if (outer == 3 || (outer == 1 && is == 2))
		now = outer;
	if (now == is)
		return true;
	v->ip[0] = bpf_htonl(word ^ (is ^ now) << shift);
	if (inner4)
		v->ip[2] = (v->ip[2] & 0xffff) |
			   (__u32)checksum_replace(v->ip[2] >> 16, was, v->ip[0]) << 16;
	return true;
}
