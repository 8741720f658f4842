/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Looking for TCP options, wherever they stand. */
#pragma once

#include "net/skb/frame.h"
#include "net/tcp.h"

/* A walk over the options; each step reads one. The first of its kind ends it. */
struct tcp_option_walk {
	__u8 options[TCP_OPTIONS_MAX];
	__u32 length;
	__u32 kind, size; /* wanted; size 0: any */
	__u32 at;
	__u32 found; /* where, counted from the TCP header's first byte; 0: nowhere */
};

static long tcp_option_step(__u64 step, struct tcp_option_walk *walk)
{
	__u32 at = walk->at;
	__u8 kind, size;

	barrier_var(at);
	if (at > TCP_OPTIONS_MAX - 2 || at + walk->size > walk->length)
		return 1;
	kind = walk->options[at];
	size = walk->options[at + 1];
	if (kind == TCP_OPTION_NOP) {
		walk->at = at + 1;
		return 0;
	}
	if (kind == walk->kind && (size == walk->size || !walk->size))
		walk->found = sizeof(struct tcphdr) + at;
	walk->at = at + size;
	return kind == TCP_OPTION_END || kind == walk->kind || size < 2;
}

/*
 * Where the option of that kind and size (0: any) begins, from the TCP header's first byte, at l4
 * of the frame; 0: nowhere. A function of its own, which the verifier walks once for all callers.
 */
__noinline __u32 tcp_option_offset(struct __sk_buff *skb, __u32 l4, __u32 kind, __u32 size)
{
	struct tcp_option_walk walk = { .kind = kind, .size = size };
	__u32 length;
	__u8 offset;

	if (bpf_skb_load_bytes(skb, l4 + 12, &offset, sizeof(offset)))
		return 0;
	length = (offset >> 4) * 4 - (__u32)sizeof(struct tcphdr);
	if (length == 0 || length > TCP_OPTIONS_MAX)
		return 0;
	if (bpf_skb_load_bytes(skb, l4 + sizeof(struct tcphdr), walk.options, length))
		return 0;
	walk.length = length;
	bpf_loop(TCP_OPTIONS_MAX, tcp_option_step, &walk, 0);
	return walk.found;
}
