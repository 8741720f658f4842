/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Answers pings to VIPs that switches hold, as muxes do for the others. */
#pragma once

#include "agent/icmp.h"
#include "agent/steer_tables.h"
#include "net/ratelimit.h"
#include "net/skb/decap.h"
#include "net/skb/ttl.h"

enum {
	PING_TTL = 64,
	PING_INTERVAL = 100000, /* ns: the host answers 10 000 a second */
	PING_BURST = 100000000, /* ns */
};

/* When the bucket of the host's answers will be full again. */
__u64 ping_tat SEC(".data.ping_tat");

/* Turns an echo request into the answer, behind what was decapsulated. */
static __noinline int ping_turn(struct __sk_buff *skb, const struct packet *p)
{
	bool v4 = p->ethertype == bpf_htons(ETH_P_IP);
	__be16 from = v4 ? bpf_htons(ICMP_ECHO << 8) : bpf_htons(ICMPV6_ECHO << 8);
	__be16 to = v4 ? bpf_htons(ICMP_ECHO_REPLY << 8) : bpf_htons(ICMPV6_ECHO_REPLY << 8);
	__u8 type = v4 ? ICMP_ECHO_REPLY : ICMPV6_ECHO_REPLY;
	__be32 addresses[8];
	int err;

	/* The addresses change places: no sum changes by that. */
	if (v4) {
		addresses[0] = p->destination.words[3];
		addresses[1] = p->source.words[3];
		err = bpf_skb_store_bytes(skb, p->l3 + offsetof(struct iphdr, saddr), addresses, 8,
					  BPF_F_RECOMPUTE_CSUM);
	} else {
		__builtin_memcpy(addresses, &p->destination, 16);
		__builtin_memcpy(addresses + 4, &p->source, 16);
		err = bpf_skb_store_bytes(skb, p->l3 + offsetof(struct ipv6hdr, saddr), addresses,
					  sizeof(addresses), BPF_F_RECOMPUTE_CSUM);
	}
	err = err ?: ttl_write(skb, p, PING_TTL);
	err = err ?: bpf_l4_csum_replace(skb, p->l4 + 2, from, to, sizeof(to));
	return err ?: bpf_skb_store_bytes(skb, p->l4, &type, sizeof(type), 0);
}

/* An enum verdict. Not static: the verifier looks at it once. */
__noinline int ping_answer(struct __sk_buff *skb, struct rx_ctx *a __arg_nonnull)
{
	struct steer_key vip = { .vip = a->inner.destination };
	const struct steer_endpoint *row = bpf_map_lookup_elem(&steer_endpoints, &vip);
	struct packet p = a->inner;
	const __u32 takes = 0; /* no dry run */

	if (!row || !(row->flags & STEER_PING) ||
	    !ratelimit_take(&ping_tat, PING_INTERVAL, PING_BURST, bpf_ktime_get_ns(), &takes))
		return VERDICT_DROP_STEER_PING;

	/* From here on the packet is touched: fail closed. */
	if (decap(skb, &a->outer, &a->tunnel, &p))
		return VERDICT_DROP_DECAPSULATE;
	return ping_turn(skb, &p) ? VERDICT_DROP_REWRITE : VERDICT_REPLY_PING;
}
