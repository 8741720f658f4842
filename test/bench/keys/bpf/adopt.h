/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The other half of the experiment, on stock kernels: a server whose kernel answers SYNs with
 * cookies (net.ipv4.tcp_syncookies=2) keeps nothing of its SYN/ACK, and takes the key that the
 * client echoes for its own. So the key of a SYN/ACK may be replaced on its way.
 */
#pragma once

#include "kernel.h"
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "net/tcp.h"

enum {
	ADOPT_CAPABLE_LENGTH = 12,
	ADOPT_KEY_AT = 4,
	ADOPT_CHECK_AT = 14 + 20 + 16,
	ADOPT_OPTIONS_AT = 14 + 20 + 20,
};

__u64 replaced; /* SYN/ACKs whose key was */

/* What is walked over; the key's option ends the walk. */
struct adopt_walk {
	__u8 options[TCP_OPTIONS_MAX];
	__u32 at, found;
};

static long adopt_step(__u64 step, struct adopt_walk *walk)
{
	__u32 at = walk->at;
	__u8 kind;

	barrier_var(at);
	if (at > TCP_OPTIONS_MAX - ADOPT_CAPABLE_LENGTH)
		return 1;
	kind = walk->options[at];
	if (kind == OPTION_MULTIPATH && walk->options[at + 1] == ADOPT_CAPABLE_LENGTH)
		walk->found = ADOPT_OPTIONS_AT + at + ADOPT_KEY_AT;
	walk->at = at + (kind == TCP_OPTION_NOP ? 1 : walk->options[at + 1]);
	return walk->found || kind == TCP_OPTION_END || walk->at == at;
}

/* Replaces the key in a SYN/ACK of IPv4 by one that the secret and the ports give. */
static __always_inline int adopt(struct __sk_buff *skb, const __u64 *secret)
{
	struct adopt_walk walk = {};
	struct sip sip = sip_begin(secret);
	__be32 was[2], key[2];
	__be16 ports[2];
	__u8 head[2]; /* offset and flags */
	__u32 length;
	__u64 chosen;

	if (skb->protocol != bpf_htons(ETH_P_IP) ||
	    bpf_skb_load_bytes(skb, 14 + 20, ports, sizeof(ports)) ||
	    bpf_skb_load_bytes(skb, 14 + 20 + 12, head, sizeof(head)) || (head[1] & 0x12) != 0x12)
		return 0;
	length = (head[0] >> 4) * 4 - 20;
	if (length == 0 || length > TCP_OPTIONS_MAX ||
	    bpf_skb_load_bytes(skb, ADOPT_OPTIONS_AT, walk.options, length))
		return 0;
	bpf_loop(TCP_OPTIONS_MAX, adopt_step, &walk, 0);
	if (!walk.found || bpf_skb_load_bytes(skb, walk.found, was, sizeof(was)))
		return 0;
	sip_word(&sip, (__u64)ports[0] << 16 | ports[1]);
	chosen = sip_end(&sip);
	key[0] = (__u32)chosen;
	key[1] = (__u32)(chosen >> 32);
	if (bpf_skb_store_bytes(skb, walk.found, key, sizeof(key), 0))
		return 0;
	bpf_l4_csum_replace(skb, ADOPT_CHECK_AT, 0,
			    bpf_csum_diff(was, sizeof(was), key, sizeof(key), 0), 0);
	__sync_fetch_and_add(&replaced, 1);
	return 0;
}
