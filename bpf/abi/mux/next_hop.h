/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"

/* The first 12 bytes of a frame to the hop, as the CPU loads them. */
struct next_hop {
	__u32 macs[3]; /* destination, then source */
	__u32 pad;
};

_Static_assert(sizeof(struct next_hop) == 16, "next_hop");
