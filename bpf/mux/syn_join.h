/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * SYNs that join a connection of Multipath TCP (RFC 8684). Answered by a cookie the subflow would
 * be lost, as the answer needs the connection's keys. So of endpoints with multipath they are
 * forwarded, within a limit: hosts drop those whose token no connection has. Beyond it they are
 * dropped, as a client sends them again.
 */
#pragma once

#include "mux/ctx.h"
#include "mux/ratelimit.h"
#include "mux/tcp_cookie.h"
#include "mux/trace.h"
#include "net/tcp.h"

enum {
	JOIN_INTERVAL = 200000, /* ns: 5 000 a second of an endpoint */
	JOIN_BURST = 100000000, /* ns */
	TCP_OPTION_MULTIPATH = 30,
	MULTIPATH_JOIN = 1, /* in the upper half of the third byte */
	MULTIPATH_JOIN_LENGTH = 12,
};

/* What becomes of a SYN where others are answered. */
enum join {
	JOIN_NONE = 0, /* it joins no connection */
	JOIN_FORWARD,
	JOIN_DROP,
};

/* When the buckets of endpoints will be full again, by id. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16385);
	__type(key, __u32);
	__type(value, __u64);
} join_tats SEC(".maps");

struct join_options {
	__u8 bytes[TCP_OPTIONS_MAX];
};

/* The options that this CPU looks at: the fast path's stack has no room for them. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct join_options);
} join_options SEC(".maps");

/*
 * Is there the option of a SYN that joins among so many bytes? Not one that is cut off: hosts and
 * workloads read it as none, so the SYN is one like any other.
 */
static __always_inline bool join_search(const struct join_options *options, __u32 length)
{
	__u32 at = 0, zero = unknown_zero;

	for (int i = 0; i < TCP_OPTIONS_MAX; i++) {
		__u8 kind, size;

		if (at > TCP_OPTIONS_MAX - MULTIPATH_JOIN_LENGTH ||
		    at + MULTIPATH_JOIN_LENGTH > length)
			return false;
		kind = options->bytes[at];
		if (kind == TCP_OPTION_END)
			return false;
		if (kind == TCP_OPTION_NOP) {
			at += zero + 1;
			continue;
		}
		size = options->bytes[at + 1];
		if (kind == TCP_OPTION_MULTIPATH && size == MULTIPATH_JOIN_LENGTH &&
		    options->bytes[at + 2] >> 4 == MULTIPATH_JOIN)
			return true; /* whatever stands before it, as for hosts */
		if (size < 2)
			return false;
		at += zero + size; /* else the verifier walks on from each sum of sizes */
	}
	return false;
}

/*
 * Does the SYN, whose TCP header is at l4, join a connection, and may it be forwarded? An enum
 * join. Not static: the verifier looks at it once.
 */
__noinline int join_admit(struct xdp_md *ctx, __u32 l4, __u32 endpoint)
{
	__u32 row = 0, length;
	struct join_options *options = bpf_map_lookup_elem(&join_options, &row);
	__u64 *tat = bpf_map_lookup_elem(&join_tats, &endpoint);
	__u8 offset = 0;

	if (!options || !tat || l4 > EXTENSIONS_START_MAX ||
	    bpf_xdp_load_bytes(ctx, l4 + 12, &offset, sizeof(offset)))
		return JOIN_NONE;
	length = (offset >> 4) * 4 - (__u32)sizeof(struct tcphdr);
	if (length < MULTIPATH_JOIN_LENGTH || length > TCP_OPTIONS_MAX)
		return JOIN_NONE;
	if (bpf_xdp_load_bytes(ctx, l4 + sizeof(struct tcphdr), options->bytes, length) ||
	    !join_search(options, length))
		return JOIN_NONE;
	return ratelimit_take(tat, JOIN_INTERVAL, JOIN_BURST, bpf_ktime_get_coarse_ns(), &cfg_trace)
		       ? JOIN_FORWARD
		       : JOIN_DROP;
}

/* Does the SYN join a connection, although others are answered? */
static __always_inline enum join syn_joins(struct xdp_md *ctx, const struct mux_ctx *w)
{
	if (!(w->endpoint->flags & ENDPOINT_MULTIPATH))
		return JOIN_NONE;
	return join_admit(ctx, w->packet.l4, w->endpoint->id);
}
