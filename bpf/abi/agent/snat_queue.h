/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/enum.h"
#include "abi/agent/session.h"

/* Why user space is notified. */
enum snat_notice {
	SNAT_NOTICE_QUEUE = 1, /* a packet waits: there is no port for its flow */
	SNAT_NOTICE_REFUSED = 2, /* a packet was dropped, for there are no ports to be had */
	SNAT_NOTICE_LOW = 3, /* few ports are left; no packet */
	SNAT_NOTICE_FULL = 4, /* a packet was dropped, for there was no room for its connection */
};

/* Room for the frame behind the head of a record. */
enum snat_queue_size {
	SNAT_QUEUE_SMALL = 240,
	SNAT_QUEUE_LARGE = 9720, /* jumbo frames */
};
ABI_ENUM(snat_queue_size);

/* What a record of snat_notices begins with; the frame follows. */
struct snat_queue_entry {
	struct session_key key; /* of snat_flows */
	__u32 workload;
	__u32 order; /* of the packet among the queued ones of its flow, from 1 */
	__u32 length; /* of the frame */
	__u16 l3; /* offsets in it */
	__u16 l4;
	__u32 ifindex; /* where the workload's packets come from; 0: native */
	__u8 notice; /* enum snat_notice */
	__u8 pad[3];
};

_Static_assert(sizeof(struct snat_queue_entry) == 64, "snat_queue_entry");
