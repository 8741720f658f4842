/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"

#include "abi/shared/address.h"

/* A VIP in a virtual network. */
struct attached_vip {
	struct address service; /* its own address, by which endpoints know it */
	__u32 attachment; /* index of network_counts; 0 is invalid */
};

/* What holds for all virtual networks. */
struct mux_overlay {
	struct address
		addresses[2]; /* of IPv4 and IPv6: VXLAN to them is for VIPs; not set: none */
	__u32 makes; /* the id of the keys that FBTs are made with; 0: none are */
	__u32 pad;
};

_Static_assert(sizeof(struct attached_vip) == 20, "attached_vip");
_Static_assert(sizeof(struct mux_overlay) == 40, "mux_overlay");
