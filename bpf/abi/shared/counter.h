/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"

/* Packets and their bytes, of the whole frame as it came in. */
struct counter {
	__u64 packets;
	__u64 bytes;
};

_Static_assert(sizeof(struct counter) == 16, "counter");
