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

/*
 * The lower three bytes of a timestamp among the length bytes of options at the offset: from the
 * lowest bit the slot, and what a SYN cookie has beside it. 0 when there is none. A function of its
 * own, which the verifier walks once.
 */
__noinline int cookie_search(struct xdp_md *ctx, __u32 offset, __u32 length,
			     enum timestamps_field field)
{
	__u8 options[TCP_OPTIONS_MAX] = {}; /* behind length they end: TCP_OPTION_END is 0 */
	__u32 at = 0, zero = unknown_zero;

	if (length < TCP_OPTION_TIMESTAMPS_LENGTH || length > TCP_OPTIONS_MAX ||
	    field > TIMESTAMPS_ECHO)
		return 0;
	if (bpf_xdp_load_bytes(ctx, offset, options, length))
		return 0;
	for (int i = 0; i < TCP_OPTIONS_MAX; i++) {
		__u8 kind, size;

		if (at > TCP_OPTIONS_MAX - TCP_OPTION_TIMESTAMPS_LENGTH)
			return 0;
		kind = options[at];
		if (kind == TCP_OPTION_END)
			return 0;
		if (kind == TCP_OPTION_NOP) {
			at += zero + 1;
			continue;
		}
		size = options[at + 1];
		if (kind == TCP_OPTION_TIMESTAMPS && size == TCP_OPTION_TIMESTAMPS_LENGTH) {
			if (at + TCP_OPTION_TIMESTAMPS_LENGTH > length)
				return 0;
			return options[at + field] << 16 | options[at + field + 1] << 8 |
			       options[at + field + 2];
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
