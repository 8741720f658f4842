/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Looking for TCP options, wherever they stand. */
#pragma once

#include "net/skb/frame.h"
#include "net/tcp.h"

/* A walk over the options; each step reads one. The first of its kind ends it, if a subtype is
 * wanted the first with that. */
struct tcp_option_walk {
	__u8 options[TCP_OPTIONS_MAX + 4]; /* the rest is for what is read of a last option */
	__u32 length;
	__u32 kind, size; /* wanted; size 0: any */
	__u32 subtype; /* wanted in the upper half of the third byte; 0: any */
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
	if (kind == walk->kind && (size == walk->size || !walk->size) &&
	    (!walk->subtype || walk->options[at + 2] >> 4 == walk->subtype)) {
		walk->found = sizeof(struct tcphdr) + at;
		return 1;
	}
	walk->at = at + size;
	return kind == TCP_OPTION_END || size < 2 || (kind == walk->kind && !walk->subtype);
}

/*
 * Where the option of that kind, size and subtype (0: any) begins, from the TCP header's first
 * byte, at l4 of the frame; 0: nowhere. A function of its own, which the verifier walks once for
 * all callers.
 */
__noinline __u32 tcp_suboption_offset(struct __sk_buff *skb, __u32 l4, __u32 kind, __u32 size,
				      __u32 subtype)
{
	struct tcp_option_walk walk = { .kind = kind, .size = size, .subtype = subtype };
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

static __always_inline __u32 tcp_option_offset(struct __sk_buff *skb, __u32 l4, __u32 kind,
					       __u32 size)
{
	return tcp_suboption_offset(skb, l4, kind, size, 0);
}
