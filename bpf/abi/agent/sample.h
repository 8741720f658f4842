/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/enum.h"
#include "abi/shared/address.h"

/* A packet of a client that was delivered, and came by a mux or a switch: one of many. */
struct sample {
	struct address vip;
	struct address source;
	__u32 bytes; /* of the packet, or of all that GRO merged */
};

/* The packets between two samples are 0 to SAMPLE_GAP_MOST, at random. */
enum sample_gap { SAMPLE_GAP_MOST = 511 };
ABI_ENUM(sample_gap);

_Static_assert(sizeof(struct sample) == 36, "sample");
