/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reading and writing the VXLAN header (RFC 7348, section 5). */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "abi/shared/vxlan.h"
#include "net/packet.h"

/* What a VXLAN packet has between the outer IP header and the inner one. */
struct vxlan_front {
	struct udphdr udp;
	struct vxlan vxlan;
	struct ethhdr eth; /* of the inner frame */
};

_Static_assert(sizeof(struct vxlan_front) == 30, "vxlan_front");

static __always_inline __u32 vni_read(const __u8 *vni)
{
	return (__u32)vni[0] << 16 | (__u32)vni[1] << 8 | vni[2];
}

static __always_inline void vni_write(__u8 *to, __u32 vni)
{
	to[0] = vni >> 16;
	to[1] = vni >> 8;
	to[2] = vni;
}

/* Is it a header that every receiver takes: a VNI and no reserved bit? */
static __always_inline bool vxlan_is_plain(const struct vxlan *h)
{
	return h->flags == VXLAN_FLAGS && !(h->reserved[0] | h->reserved[1] | h->reserved[2]) &&
	       !h->route;
}

/* Likewise, with a ticket in the inner frame. */
static __always_inline bool vxlan_has_ticket(const struct vxlan *h)
{
	return h->flags == VXLAN_FLAGS && !(h->reserved[0] | h->reserved[1] | h->reserved[2]) &&
	       (h->route & ~VXLAN_TICKET_KEY) == VXLAN_TICKET;
}

/* Likewise, with the route flag. */
static __always_inline bool vxlan_has_route(const struct vxlan *h)
{
	return h->flags == VXLAN_FLAGS && !(h->reserved[0] | h->reserved[1] | h->reserved[2]) &&
	       h->route == VXLAN_ROUTE;
}

static __always_inline void vxlan_write(struct vxlan *h, __u32 vni, bool route)
{
	h->flags = VXLAN_FLAGS;
	h->reserved[0] = h->reserved[1] = h->reserved[2] = 0;
	vni_write(h->vni, vni);
	h->route = route ? VXLAN_ROUTE : 0;
}
