/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whose address a workload may send from: its own. The agent knows those of backends and of
 * workloads with source NAT; of others the host's routes say whether they are behind the interface.
 * A VIP is behind none.
 */
#pragma once

#include "lib/agent_tables.h"
#include "lib/packet.h"

/* None yet (DHCP, duplicate address detection), or one of the link, which nobody routes. */
static __always_inline bool address_is_of_link(const struct address *a)
{
	if (address_is_v4(a))
		return !a->words[3] ||
		       (a->words[3] & bpf_htonl(0xffff0000)) == bpf_htonl(0xa9fe0000);
	return !address_is_set(a) || (a->words[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000);
}

/* Does the host send to the packet's source by the interface of ifindex? */
static __noinline bool source_is_routed(struct __sk_buff *skb, const struct packet *p,
					__u32 ifindex)
{
	struct bpf_fib_lookup way = { .ifindex = ifindex, .tot_len = 1 };
	long err;

	if (p->ethertype == bpf_htons(ETH_P_IP)) {
		way.family = AF_INET;
		way.ipv4_src = p->destination.words[3];
		way.ipv4_dst = p->source.words[3];
	} else {
		way.family = AF_INET6;
		__builtin_memcpy(way.ipv6_src, &p->destination, sizeof(way.ipv6_src));
		__builtin_memcpy(way.ipv6_dst, &p->source, sizeof(way.ipv6_dst));
	}
	err = bpf_fib_lookup(skb, &way, sizeof(way), BPF_FIB_LOOKUP_SKIP_NEIGH);
	/* Where the kernel does not forward, it drops what is not for the host itself. */
	if (err < 0 || err == BPF_FIB_LKUP_RET_FWD_DISABLED)
		return true;
	return err == BPF_FIB_LKUP_RET_SUCCESS && way.ifindex == ifindex;
}

/* What came from a workload's interface: from an address that is there? */
static __noinline enum verdict source_check(struct __sk_buff *skb, const struct packet *p,
					    __u32 ifindex)
{
	struct address source = p->source;
	const __u32 *home;

	if (!settings.check_sources)
		return VERDICT_NONE;
	home = bpf_map_lookup_elem(&workloads, &source);
	if (home ? *home == ifindex
		 : address_is_of_link(&source) || source_is_routed(skb, p, ifindex))
		return VERDICT_NONE;
	return VERDICT_DROP_NOT_ITS_SOURCE;
}

/*
 * What leaves by the uplink, by way of another interface: not from an address that is behind a
 * third one? What the host itself sends, nothing here can stop.
 */
static __noinline enum verdict source_check_passing(const struct packet *p, __u32 ifindex)
{
	struct address source = p->source;
	const __u32 *home;

	if (!settings.check_sources || !ifindex)
		return VERDICT_NONE;
	home = bpf_map_lookup_elem(&workloads, &source);
	return home && *home && *home != ifindex ? VERDICT_DROP_NOT_ITS_SOURCE : VERDICT_NONE;
}
