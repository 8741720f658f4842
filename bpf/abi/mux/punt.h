/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"

#include "abi/enum.h"

/* Why a packet is handed to user space. */
enum punt_reason {
	PUNT_FRAGMENT = 1, /* later fragment of a datagram whose first one did not come yet */
	PUNT_ERROR = 2, /* ICMP error about a connection that any backend may have */
	PUNT_SPLIT = 3, /* IPv4, may be fragmented, and must be to be encapsulated */
};

/* Sizes of a record: the frame's room behind the head. */
enum punt_size {
	PUNT_SMALL = 2040,
	PUNT_LARGE = 9720, /* jumbo frames */
};
ABI_ENUM(punt_size);

/* What a record of `punts` begins with; the frame follows. */
struct punt {
	__u32 length; /* of the frame */
	__u16 l3; /* offset of its IP header */
	__u8 reason; /* enum punt_reason */
	__u8 pad;
};

_Static_assert(sizeof(struct punt) == 8, "punt");
