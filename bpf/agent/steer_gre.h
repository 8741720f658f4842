/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * GRE by switches whose tunnels have no other form (RFC 2784). It is taken only from a switch that
 * holds a VIP of this host, and from other hosts of such a VIP if it is for that, as what GRO
 * merged stays in it; all other GRE is someone else's, and passes: hosts may have tunnels of their
 * own.
 */
#pragma once

#include "agent/steer_tables.h"
#include "net/skb/decap.h"

struct gre {
	__be16 flags; /* checksum, key, sequence number and version: none, and 0 */
	__be16 protocol; /* an EtherType */
};

_Static_assert(sizeof(struct gre) == 4, "gre");

/* Is what is inside, at so many bytes, for a VIP that the outer source is a host of? */
static __noinline bool gre_is_of_host(struct __sk_buff *skb, const struct packet *outer, __u32 at,
				      __be16 ethertype)
{
	struct steer_source key = { .source = outer->source };
	const __u32 *role;
	__be32 v4 = 0;

	if (ethertype == bpf_htons(ETH_P_IP)) {
		if (bpf_skb_load_bytes(skb, at + offsetof(struct iphdr, daddr), &v4, sizeof(v4)))
			return false;
		address_from_v4(&key.vip, v4);
	} else if (bpf_skb_load_bytes(skb, at + offsetof(struct ipv6hdr, daddr), &key.vip,
				      sizeof(key.vip))) {
		return false;
	}
	role = bpf_map_lookup_elem(&steer_sources, &key);
	return role && *role == STEER_HOST;
}

/* The tunnel of a packet in GRE; false: it is someone else's. */
static __noinline bool gre_read_tunnel(struct __sk_buff *skb, const struct packet *outer,
				       struct tunnel *t)
{
	__u32 room = outer->l3 + outer->l3_length - outer->l4, role = steer_role_of(outer);
	struct gre gre = {};

	if (!role || room < sizeof(gre))
		return false;
	if (bpf_skb_load_bytes(skb, outer->l4, &gre, sizeof(gre)) || gre.flags)
		return false;
	t->header = outer->l4 - outer->l3 + sizeof(gre);
	t->payload = room - sizeof(gre);
	if (!tunnel_carries(t, gre.protocol))
		return false;
	return role == STEER_SWITCH ||
	       gre_is_of_host(skb, outer, outer->l3 + t->header, gre.protocol);
}
