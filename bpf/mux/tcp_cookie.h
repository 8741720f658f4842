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

/*
 * The lower three bytes of a timestamp among the length bytes of options at the offset: from the
 * lowest bit the slot, and what a SYN cookie has beside it. 0 when there is none. A function of its
 * own, which the verifier walks once.
 */
__noinline int cookie_search(struct xdp_md *ctx, __u32 offset, __u32 length,
			     enum timestamps_field field)
{
	struct tcp_option_walk walk = {
		.length = length,
		.kind = TCP_OPTION_TIMESTAMPS,
		.size = TCP_OPTION_TIMESTAMPS_LENGTH,
	};
	__u32 at;

	if (length < TCP_OPTION_TIMESTAMPS_LENGTH || length > TCP_OPTIONS_MAX ||
	    field > TIMESTAMPS_ECHO)
		return 0;
	if (bpf_xdp_load_bytes(ctx, offset, walk.options, length))
		return 0;
	at = tcp_option_find(&walk);
	barrier_var(at);
	if (at > TCP_OPTIONS_MAX - TCP_OPTION_TIMESTAMPS_LENGTH)
		return 0;
	at += field;
	return walk.options[at] << 16 | walk.options[at + 1] << 8 | walk.options[at + 2];
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
