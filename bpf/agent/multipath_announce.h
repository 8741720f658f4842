/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a workload announces of its addresses (ADD_ADDR; RFC 8684, section 3.4.1). Clients must know
 * the VIP alone: another address is of no use to them, or leads past the muxes; at another VIP of
 * the workload no host knows their tokens. Its announcement loses the address and the HMAC, so
 * that clients refuse it. It stays an announcement: the first segment that a client gets after the
 * SYN/ACK must have an option of Multipath TCP, or its connection falls back to plain TCP (section
 * 3.7). Without a HMAC, as in version 0, it becomes padding. The workload waits for an echo, says
 * it again a few times, and then no more.
 */
#pragma once

#include "agent/multipath_event.h"
#include "agent/multipath_token.h"
#include "net/skb/rewrite.h"
#include "net/tcp.h"

enum {
	ANNOUNCEMENT_MIN = 8, /* bytes: of an IPv4 address, and no HMAC, as in version 0 */
	ANNOUNCEMENT_MIN_V6 = 20,
	ANNOUNCEMENT_ADDRESS = 4, /* where it stands in the option */
	/* Of version 1, with a HMAC: of an address, and a port or none. */
	ANNOUNCEMENT_HMAC = 16,
	ANNOUNCEMENT_HMAC_PORT = 18,
	ANNOUNCEMENT_HMAC_V6 = 28,
	ANNOUNCEMENT_HMAC_V6_PORT = 30,
};

/* A walk over the options; each step is at one byte. */
struct announcements {
	__u8 options[TCP_OPTIONS_MAX];
	__u32 length;
	__u32 next; /* where the next option begins */
	__u32 from, until; /* the bytes between are replaced */
	__u32 removed;
	__u8 by;
	struct address vip;
};

/* What an option of Multipath TCP begins with. */
struct multipath_head {
	__u8 kind;
	__u8 size;
	__u8 subtype;
	__u8 flags;
};

/*
 * May a workload's segment hold an announcement? Plain TCP's does not, unless it tells of what was
 * lost; nor do nearly all of Multipath TCP. In a SYN/ACK none is read.
 */
static __always_inline bool announcement_fits(struct __sk_buff *skb, const struct packet *p)
{
	const struct tcp_aligned *segment;
	const struct multipath_head *option;
	const struct tcphdr *tcp;
	__u32 left;

	if (p->protocol != IPPROTO_TCP || p->tcp_flags & TCP_FLAG_SYN)
		return false;
	tcp = frame_at(skb, p->l4, sizeof(*tcp));
	if (!tcp)
		return true;
	left = tcp->doff * 4 - sizeof(*tcp);
	if (left < ANNOUNCEMENT_MIN)
		return false;
	segment = frame_at(skb, p->l4, sizeof(*segment));
	if (!segment || segment->head != TCP_ALIGNED_TIMESTAMPS ||
	    left < sizeof(*segment) - sizeof(*tcp))
		return true;
	left -= sizeof(*segment) - sizeof(*tcp);
	if (left < ANNOUNCEMENT_MIN)
		return false;
	option = frame_at(skb, p->l4 + sizeof(*segment), sizeof(*option));
	if (!option || option->kind != TCP_OPTION_MULTIPATH ||
	    option->subtype >> 4 != MULTIPATH_DSS)
		return true;
	return left >= option->size + ANNOUNCEMENT_MIN;
}

/* Does the option name the VIP? It has so many bytes, at least ANNOUNCEMENT_MIN. */
static __always_inline bool announcement_is_of_vip(const struct announcements *walk, __u32 at,
						   __u32 size)
{
	struct address said;

	barrier_var(at);
	if (at > TCP_OPTIONS_MAX - ANNOUNCEMENT_MIN)
		return false;
	__builtin_memcpy(&said.words[3], walk->options + at + ANNOUNCEMENT_ADDRESS,
			 sizeof(said.words[3]));
	if (size < ANNOUNCEMENT_MIN_V6)
		return address_is_v4(&walk->vip) && said.words[3] == walk->vip.words[3];
	barrier_var(at);
	if (at > TCP_OPTIONS_MAX - ANNOUNCEMENT_MIN_V6)
		return false;
	__builtin_memcpy(&said, walk->options + at + ANNOUNCEMENT_ADDRESS, sizeof(said));
	return address_equal(&said, &walk->vip);
}

/* Is the option, of so many bytes, an announcement of another address than the VIP? */
static __always_inline bool announcement_is_foreign(const struct announcements *walk, __u32 at,
						    __u32 size)
{
	__u8 subtype;

	barrier_var(at);
	if (size < ANNOUNCEMENT_MIN || at > TCP_OPTIONS_MAX - ANNOUNCEMENT_MIN ||
	    walk->options[at] != TCP_OPTION_MULTIPATH)
		return false;
	subtype = walk->options[at + 2];
	if (subtype >> 4 != MULTIPATH_ADD_ADDRESS || subtype & MULTIPATH_ECHO)
		return false;
	return !announcement_is_of_vip(walk, at, size);
}

/* Has the bytes of an announcement replaced, all or what clients would believe. */
static __always_inline void announcement_remove(struct announcements *walk, __u32 at, __u32 size)
{
	const bool hmac = size == ANNOUNCEMENT_HMAC || size == ANNOUNCEMENT_HMAC_PORT ||
			  size == ANNOUNCEMENT_HMAC_V6 || size == ANNOUNCEMENT_HMAC_V6_PORT;

	walk->from = hmac ? at + ANNOUNCEMENT_ADDRESS : at;
	walk->until = at + size;
	walk->by = hmac ? 0 : TCP_OPTION_NOP;
	walk->removed++;
}

/* An option begins here. False: it is the last, or contradicts itself; receivers read no further.
 */
static __always_inline bool announcement_read(struct announcements *walk, __u32 at)
{
	__u8 size = 1;

	barrier_var(at);
	if (at > TCP_OPTIONS_MAX - 2) /* nothing that is longer than a byte begins there */
		return false;
	if (walk->options[at] == TCP_OPTION_END)
		return false;
	if (walk->options[at] != TCP_OPTION_NOP) {
		size = walk->options[at + 1];
		if (size < 2 || at + size > walk->length)
			return false;
	}
	walk->next = at + size;
	if (announcement_is_foreign(walk, at, size))
		announcement_remove(walk, at, size);
	return true;
}

static long announcement_step(__u64 step, struct announcements *walk)
{
	__u32 at = step;

	if (at >= walk->length || (at == walk->next && !announcement_read(walk, at)))
		return 1;
	barrier_var(at);
	if (at >= walk->from && at < walk->until && at < TCP_OPTIONS_MAX)
		walk->options[at] = walk->by;
	return 0;
}

/*
 * Removes what a workload's segment announces, but for the VIP. For difference see rewrite_begin().
 * Not static: the verifier looks at it once, and other ways have its stack.
 */
__noinline int announcements_remove(struct __sk_buff *skb, const struct packet *p __arg_nonnull,
				    const struct address *vip __arg_nonnull,
				    __u32 *difference __arg_nonnull)
{
	struct announcements walk = { .vip = *vip };
	__u32 at = p->l4 + sizeof(struct tcphdr), length;
	__u32 before, after;
	__u8 offset;

	if (bpf_skb_load_bytes(skb, p->l4 + 12, &offset, sizeof(offset)))
		return -1;
	length = (offset >> 4) * 4 - (__u32)sizeof(struct tcphdr);
	if (length == 0 || length > TCP_OPTIONS_MAX)
		return 0;
	if (bpf_skb_load_bytes(skb, at, walk.options, length))
		return -1;
	walk.length = length;
	before = bpf_csum_diff(NULL, 0, (__be32 *)walk.options, sizeof(walk.options), 0);
	bpf_loop(TCP_OPTIONS_MAX, announcement_step, &walk, 0);
	if (!walk.removed)
		return 0;
	multipath_happened(skb, MULTIPATH_ANNOUNCEMENT_REMOVED);
	after = bpf_csum_diff(NULL, 0, (__be32 *)walk.options, sizeof(walk.options), 0);
	*difference = sum_change(*difference, before, after);
	return bpf_skb_store_bytes(skb, at, walk.options, length, 0);
}
