/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/enum.h"
#include "abi/shared/address.h"
#include "abi/shared/counter.h"
#include "abi/shared/network.h"

/* A VIP in a virtual network. */
struct overlay_attachment {
	struct address vip; /* in that network */
	struct address service; /* the VIP's own address, by which rules know it */
	__u32 vni; /* 0: none of that number */
	__u32 tenant; /* of the network */
	__u8 gateway_mac[6]; /* from where the network's frames come */
	__u8 pad[2];
};

/* Backends of one endpoint on one host are told apart by the outer destination.
 */
struct overlay_rule_key {
	struct address vip; /* the VIP's own address */
	struct address tunnel;
	__be16 port; /* 0: all ports */
	__u8 protocol;
	__u8 pad;
};

enum overlay_workload {
	OVERLAY_NO_WORKLOAD = 0, /* e.g. while a VM is down */
	OVERLAY_NATIVE = 1, /* on the host itself */
	OVERLAY_BEHIND_INTERFACE = 2,
};

enum overlay_rule_flag {
	OVERLAY_SYN_COOKIES = 1, /* muxes may answer SYNs of the endpoint */
};
ABI_ENUM(overlay_rule_flag);

struct overlay_rule {
	struct address dip;
	struct address tunnel;
	__be16 port; /* 0: the client's */
	__u16 flags; /* enum overlay_rule_flag */
	enum overlay_workload workload;
	__u32 ifindex; /* of the workload's host-side interface */
	__u32 idle_timeout; /* of open connections, in ms */
};

/* Of an attachment. */
struct overlay_traffic {
	struct counter in; /* from clients to servers */
	struct counter out;
	__u64 opened;
	__u64 confirmed; /* of these, those that the client has acknowledged */
	__u64 refused; /* for lack of room */
	__u64 resets; /* sent to clients for segments of no session */
};

_Static_assert(sizeof(struct overlay_attachment) == 48, "overlay_attachment");
_Static_assert(sizeof(struct overlay_rule_key) == 36, "overlay_rule_key");
_Static_assert(sizeof(struct overlay_rule) == 48, "overlay_rule");
_Static_assert(sizeof(struct overlay_traffic) == 64, "overlay_traffic");
