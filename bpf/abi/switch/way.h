/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"

/* The way to a tunnel's end, as the kernel's routes had it in a jiffy. */
struct way {
	__u64 jiffy; /* 0: none */
	__u32 tunnel; /* the last word of its address: the row may be another tunnel's by now */
	__u32 port; /* ifindex */
	__u32 macs[3];
	__u32 mtu;
};

_Static_assert(sizeof(struct way) == 32, "way");
