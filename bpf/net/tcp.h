/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * TCP's options as they stand on the wire (RFC 9293, section 3.1; RFC 7323, section 3).
 *
 * Three walks over them stay. The mux's search for a cookie (mux/tcp_cookie.h) is on its fast path:
 * by bpf_loop(), as the agent's search (net/skb/tcp_options.h) has it, a segment with 30 paddings
 * takes 2.4 times as long, and the stack of mux_trace has no room for what the callback needs. The
 * reading of a SYN (mux/slowpath/syn_reply.h) wants all options, and tells a list that contradicts
 * itself from one that ends. A common step for both of these has more lines than it saves.
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_endian.h>

enum {
	TCP_OPTIONS_MAX = 40,
	TCP_OPTION_END = 0,
	TCP_OPTION_NOP = 1,
	TCP_OPTION_MSS = 2,
	TCP_OPTION_MSS_LENGTH = 4,
	TCP_OPTION_WSCALE = 3,
	TCP_OPTION_WSCALE_LENGTH = 3,
	TCP_OPTION_SACK_OK = 4,
	TCP_OPTION_SACK_OK_LENGTH = 2,
	TCP_OPTION_TIMESTAMPS = 8,
	TCP_OPTION_TIMESTAMPS_LENGTH = 10,
};

/* Timestamps where Linux and most others write them: behind two paddings, before all else. */
struct tcp_aligned {
	struct tcphdr tcp;
	__be32 head; /* TCP_ALIGNED_TIMESTAMPS */
	__be32 tsval;
	__be32 tsecr;
};

#define TCP_ALIGNED_TIMESTAMPS bpf_htonl(0x0101080a)
