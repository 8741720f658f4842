/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * VXLAN by switches that have no other tunnel to a list of hosts. It is taken only from a switch
 * that holds a VIP of this host, in the one network that is for that; all other VXLAN is someone
 * else's, and passes.
 */
#pragma once

#include "agent/steer_tables.h"
#include "agent/maps.h"
#include "net/skb/decap.h"
#include "net/vxlan.h"

/* The tunnel of a packet to UDP port 4789; false: it is not of a switch. */
static __noinline bool vxlan_read_tunnel(struct __sk_buff *skb, const struct packet *outer,
					 struct tunnel *t)
{
	__u32 room = outer->l3 + outer->l3_length - outer->l4, udp;
	struct vxlan_front front = {};

	if (steer_role_of(outer) != STEER_SWITCH)
		return false;
	if (bpf_skb_load_bytes(skb, outer->l4, &front, sizeof(front)))
		return false;
	if (!vxlan_is_plain(&front.vxlan) || vni_read(front.vxlan.vni) != STEER_VNI)
		return false;
	udp = bpf_ntohs(front.udp.len);
	if (udp > room || udp < sizeof(front))
		return false;
	t->entropy = front.udp.source;
	t->header = outer->l4 - outer->l3 + sizeof(front);
	t->payload = udp - sizeof(front);
	return tunnel_carries(t, front.eth.h_proto);
}
