/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * GRE by switches whose tunnels have no other form (RFC 2784). It is taken only from a switch that
 * holds a VIP of this host, and from other hosts of such a VIP, as what GRO merged stays in it; all
 * other GRE is someone else's, and passes.
 */
#pragma once

#include "agent/steer_tables.h"
#include "net/skb/decap.h"

struct gre {
	__be16 flags; /* checksum, key, sequence number and version: none, and 0 */
	__be16 protocol; /* an EtherType */
};

_Static_assert(sizeof(struct gre) == 4, "gre");

/* The tunnel of a packet in GRE; false: it is not of a switch. */
static __noinline bool gre_read_tunnel(struct __sk_buff *skb, const struct packet *outer,
				       struct tunnel *t)
{
	__u32 room = outer->l3 + outer->l3_length - outer->l4;
	struct gre gre = {};

	if (!steer_role_of(outer) || room < sizeof(gre))
		return false;
	if (bpf_skb_load_bytes(skb, outer->l4, &gre, sizeof(gre)) || gre.flags)
		return false;
	t->header = outer->l4 - outer->l3 + sizeof(gre);
	t->payload = room - sizeof(gre);
	return tunnel_carries(t, gre.protocol);
}
