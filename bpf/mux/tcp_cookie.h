/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Reads the cookie: the slot that a backend's agent put into the low bits of TSval, which the
 * client's stack sends back as TSecr (RFC 7323; MPLB, section 3).
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "abi/shared/slot.h"
#include "net/packet.h"
#include "net/tcp.h"

/* Where the lower three bytes of a timestamp, which carry the cookie, stand in the option. */
enum timestamps_field {
	TIMESTAMPS_VALUE = 3,
	TIMESTAMPS_ECHO = 7,
};

/* Zero, which the verifier can't know: what it is added to may then be anything to it. */
volatile __u32 unknown_zero;

/* How far from the frame's beginning the verifier lets options be. */
enum { OPTIONS_OFFSET_MAX = 0x7fff };

/* TCP's options, to be read by the byte or eight at once. */
union tcp_options {
	__u64 words[TCP_OPTIONS_MAX / sizeof(__u64)];
	__u8 bytes[TCP_OPTIONS_MAX];
};

/* How many paddings begin at a place, where one does, up to the end of its word. */
static __always_inline __u32 paddings_at(const union tcp_options *options, __u32 at)
{
	const __u64 paddings = 0x0101010101010101ULL * TCP_OPTION_NOP;
	__u64 others = (options->words[at / 8] ^ paddings) >> at % 8 * 8;
	__u32 count = 0;

	if (!others)
		return 8 - at % 8;
	if (!(__u32)others) {
		count = 4;
		others >>= 32;
	}
	if (!(__u16)others) {
		count += 2;
		others >>= 16;
	}
	return count + !(__u8)others;
}

/*
 * Reads length bytes of options at the offset. Behind them anything may stand, up to the end of the
 * room. By hand where the packet is long enough: a call takes longer.
 */
static __always_inline bool options_load(struct xdp_md *ctx, __u32 offset, __u32 length,
					 union tcp_options *to)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	const union tcp_options *from = data + offset;

	if (offset <= OPTIONS_OFFSET_MAX && (void *)(from + 1) <= end) {
		*to = *from;
		return true;
	}
	__builtin_memset(to, 0, sizeof(*to));
	return !bpf_xdp_load_bytes(ctx, offset, to->bytes, length);
}

/*
 * The lower three bytes of a timestamp among the length bytes of options at the offset: from the
 * lowest bit the slot, and what a SYN cookie has beside it. 0 when there is none. A function of its
 * own, which the verifier walks once.
 */
__noinline int cookie_search(struct xdp_md *ctx, __u32 offset, __u32 length,
			     enum timestamps_field field)
{
	union tcp_options options;
	__u32 at = 0, zero = unknown_zero;

	if (length < TCP_OPTION_TIMESTAMPS_LENGTH || length > TCP_OPTIONS_MAX ||
	    field > TIMESTAMPS_ECHO)
		return 0;
	if (!options_load(ctx, offset, length, &options))
		return 0;
	for (int i = 0; i < TCP_OPTIONS_MAX; i++) {
		__u8 kind, size;

		if (at > TCP_OPTIONS_MAX - TCP_OPTION_TIMESTAMPS_LENGTH)
			return 0;
		kind = options.bytes[at];
		if (kind == TCP_OPTION_END)
			return 0;
		if (kind == TCP_OPTION_NOP) {
			at += zero + paddings_at(&options, at);
			continue;
		}
		size = options.bytes[at + 1];
		if (kind == TCP_OPTION_TIMESTAMPS && size == TCP_OPTION_TIMESTAMPS_LENGTH) {
			if (at + TCP_OPTION_TIMESTAMPS_LENGTH > length)
				return 0;
			return options.bytes[at + field] << 16 |
			       options.bytes[at + field + 1] << 8 | options.bytes[at + field + 2];
		}
		if (size < 2)
			return 0;
		at += zero + size; /* else the verifier walks on from each sum of sizes */
	}
	return 0;
}

/* The slot that the segment names, or 0. */
static __always_inline __u32 cookie_slot(struct xdp_md *ctx, const struct packet *p)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct tcp_aligned *head = data + p->l4;
	__u32 options;

	if (p->tcp_flags & TCP_FLAG_SYN)
		return 0;
	barrier_var(head);
	if ((void *)(&head->tcp + 1) > end)
		return 0; /* can't be: it was parsed */
	options = head->tcp.doff * 4 - sizeof(struct tcphdr);
	if (options < TCP_OPTION_TIMESTAMPS_LENGTH)
		return 0;
	if ((void *)(head + 1) <= end && options >= sizeof(*head) - sizeof(struct tcphdr) &&
	    head->head == TCP_ALIGNED_TIMESTAMPS)
		return bpf_ntohl(head->tsecr) & SLOT_MASK;
	return cookie_search(ctx, p->l4 + sizeof(struct tcphdr), options, TIMESTAMPS_ECHO) &
	       SLOT_MASK;
}
