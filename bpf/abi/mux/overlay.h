/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"

#include "abi/enum.h"
#include "abi/shared/address.h"

/* Bits of attached_vip.flags: whose answers go by muxes, and full NAT in the mux. */
enum attached_flag {
	ATTACHED_FULL_NAT = 0x1, /* those to all clients */
	ATTACHED_RELAY = 0x2, /* those to clients whose host has no agent */
	ATTACHED_NAT = 0x4, /* connections that begin have full NAT in the mux */
	ATTACHED_SESSIONS = 0x8, /* sessions of that may live: they go before all else */
};
ABI_ENUM(attached_flag);

/* A VIP in a virtual network. */
struct attached_vip {
	struct address service; /* its own address, by which endpoints know it */
	__u32 attachment; /* index of network_counts; 0 is invalid */
	__u8 gateway_mac[6]; /* from where the network's frames come */
	__u16 flags; /* enum attached_flag */
};

/* What holds for all virtual networks. */
struct mux_overlay {
	struct address
		addresses[2]; /* of IPv4 and IPv6: VXLAN to them is for VIPs; not set: none */
	__u32 makes; /* the id of the keys that FBTs are made with; 0: none are */
	__u32 pad;
};

_Static_assert(sizeof(struct attached_vip) == 28, "attached_vip");
_Static_assert(sizeof(struct mux_overlay) == 40, "mux_overlay");
