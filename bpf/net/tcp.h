/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * TCP's options as they stand on the wire (RFC 9293, section 3.1; RFC 7323, section 3), and the
 * walk over those that were copied out of a packet: XDP programs and those on socket buffers share
 * it.
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

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
	TCP_OPTION_MALFORMED = 256, /* no kind: an option reaches beyond the others' end */
};

/* Timestamps where Linux and most others write them: behind two paddings, before all else. */
struct tcp_aligned {
	struct tcphdr tcp;
	__be32 head; /* TCP_ALIGNED_TIMESTAMPS */
	__be32 tsval;
	__be32 tsecr;
};

#define TCP_ALIGNED_TIMESTAMPS bpf_htonl(0x0101080a)

/* A walk over options, and a search for one kind. In bytes: the stack of mux_trace is full. */
struct tcp_option_walk {
	__u8 options[TCP_OPTIONS_MAX];
	__u8 length; /* of the options, up to TCP_OPTIONS_MAX */
	__u8 at; /* offset of the option at hand */
	__u8 kind, size; /* wanted; size 0: any */
	__u8 found; /* offset; TCP_OPTIONS_MAX: nowhere */
};

/* Kind and size of the option at hand; TCP_OPTION_END or TCP_OPTION_MALFORMED ends the walk. */
static __always_inline __u32 tcp_option_read(const struct tcp_option_walk *walk, __u32 *size)
{
	__u32 at = walk->at, kind;

	*size = 1;
	barrier_var(at);
	if (at >= walk->length || at >= TCP_OPTIONS_MAX)
		return TCP_OPTION_END;
	kind = walk->options[at];
	if (kind == TCP_OPTION_END || kind == TCP_OPTION_NOP)
		return kind;
	*size = at < TCP_OPTIONS_MAX - 1 ? walk->options[at + 1] : 0;
	return *size < 2 || at + *size > walk->length ? TCP_OPTION_MALFORMED : kind;
}

static long tcp_option_step(__u64 step, struct tcp_option_walk *walk)
{
	__u32 size, kind = tcp_option_read(walk, &size);

	(void)step;
	if (kind == walk->kind && (size == walk->size || !walk->size)) {
		walk->found = walk->at;
		return 1;
	}
	walk->at += size;
	return kind == TCP_OPTION_END || kind == TCP_OPTION_MALFORMED;
}

/* The offset of the first option of the kind and size; TCP_OPTIONS_MAX: there is none. */
static __always_inline __u32 tcp_option_find(struct tcp_option_walk *walk)
{
	walk->found = TCP_OPTIONS_MAX;
	bpf_loop(TCP_OPTIONS_MAX, tcp_option_step, walk, 0);
	return walk->found;
}
