/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/shared/address.h"

struct overlay_settings {
	__u32 set_mask; /* number of sets, a power of two, less 1 */
	__u32 old_mask; /* likewise, before the table grew; set_mask: no row of then is left */
	__u32 uplink; /* ifindex */
	__u32 mtu; /* of the uplink */
	__be32 local4; /* local addresses of IPv4 connections: prefix, and its mask */
	__be32 local4_mask;
	__be32 local6[2]; /* of IPv6 ones: 48 bits */
	__u32 seal[2]; /* marks what the programs send out; secret */
	__u32 paused; /* no session begins: the table is about to be another one */
	struct address own4, own6; /* tunnel addresses of this host; not set: none of the family */
	struct address mux4, mux6; /* likewise, where the muxes take VXLAN (NGLB: LIP) */
	__u8 uplink_mac[6];
	__u8 pad[2];
};

_Static_assert(sizeof(struct overlay_settings) == 116, "overlay_settings");
