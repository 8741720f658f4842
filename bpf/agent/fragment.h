/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Fragments, of which only the first has ports. Inward, GUE tells them of each one (the mux keeps
 * the datagram); outward, the first one that leaves is remembered for those that follow.
 */
#pragma once

#include "agent/maps.h"
#include "agent/tenants.h"
#include "net/datagram.h"
#include "net/skb/decap.h"
#include "net/skb/fragment.h"

/* Goes on behind the IP header of a fragment that came with its ports. */
static __always_inline enum parsed fragment_parse(struct __sk_buff *skb, const struct tunnel *t,
						  struct packet *p)
{
	bool has_ports = p->protocol == IPPROTO_TCP || p->protocol == IPPROTO_UDP;
	bool is_icmp = p->protocol == IPPROTO_ICMP || p->protocol == IPPROTO_ICMPV6;
	enum parsed parsed;

	/* Of an answer to a workload's ping: the tunnel's destination port is the identifier. */
	if (p->fragment_offset)
		return has_ports || (is_icmp && settings.snat) ? PARSED_OK : PARSED_OTHER;
	if (!has_ports)
		return PARSED_OTHER;
	parsed = frame_parse_transport(skb, p);
	if (parsed == PARSED_OK &&
	    (p->source_port != t->source_port || p->destination_port != t->destination_port))
		return PARSED_MALFORMED;
	return parsed;
}

static __always_inline struct datagram_set *fragment_set(__u64 hash)
{
	__u32 row = hash % REPLY_FRAGMENT_SETS;

	return bpf_map_lookup_elem(&reply_fragments, &row);
}

/*
 * Remembers what the first fragment leaves as: the VIP, or nothing, for it is dropped, and those
 * that follow are to be dropped too.
 */
__noinline int fragment_note(const struct packet *p __arg_nonnull,
			     const struct address *vip __arg_nonnull, bool dropped)
{
	struct datagram d = {
		.hash = datagram_hash(p, &hash_key),
		.owner = tenant_of(vip) ?: -1U, /* whose nobody has said yet, all together */
	};

	if (!dropped)
		__builtin_memcpy(d.words, vip, sizeof(d.words));
	return datagram_note(fragment_set(d.hash), &d);
}

/* A later fragment leaves as the first one did. */
static __noinline enum verdict fragment_reply(struct __sk_buff *skb, const struct packet *p)
{
	struct datagram d = { .hash = datagram_hash(p, &hash_key) };
	struct address vip;

	if (!datagram_recall(fragment_set(d.hash), &d))
		return VERDICT_PASS_FRAGMENT;
	__builtin_memcpy(&vip, d.words, sizeof(vip));
	if (!address_is_set(&vip)) /* its first one had no port, and was dropped */
		return VERDICT_DROP_SNAT_QUEUE_FRAGMENT;
	return rewrite_fragment(skb, p, SOURCE, &vip) ? VERDICT_DROP_REWRITE : VERDICT_NONE;
}
