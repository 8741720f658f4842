/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The search for an option in the TCP header of a socket buffer. */
#pragma once

#include "net/skb/frame.h"
#include "net/tcp.h"

/*
 * Where the option of a kind and size (0: any) begins, from the first byte of the TCP header at l4;
 * 0: nowhere. A function of its own, which the verifier walks once for all callers.
 */
__noinline __u32 tcp_option_offset(struct __sk_buff *skb, __u32 l4, __u32 kind, __u32 size)
{
	struct tcp_option_walk walk = { .kind = kind, .size = size };
	__u32 length, at;
	__u8 offset;

	if (bpf_skb_load_bytes(skb, l4 + 12, &offset, sizeof(offset)))
		return 0;
	length = (offset >> 4) * 4 - (__u32)sizeof(struct tcphdr);
	if (length == 0 || length > TCP_OPTIONS_MAX)
		return 0;
	if (bpf_skb_load_bytes(skb, l4 + sizeof(struct tcphdr), walk.options, length))
		return 0;
	walk.length = length;
	at = tcp_option_find(&walk);
	return at < TCP_OPTIONS_MAX ? sizeof(struct tcphdr) + at : 0;
}
