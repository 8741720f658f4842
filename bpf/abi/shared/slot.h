/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/enum.h"

/* A slot numbers a backend of an endpoint, 0 is none: in buckets, flows and cookies alike. */
enum slot_layout {
	SLOT_BITS = 13,
	SLOT_MASK = (1 << SLOT_BITS) - 1,
};
ABI_ENUM(slot_layout);
