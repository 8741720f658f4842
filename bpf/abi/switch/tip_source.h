/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"
#include "abi/shared/address.h"

/* A switch that packets of a TIP come from. */
struct tip_source {
	__u32 id; /* of the TIP's host */
	struct address address; /* outer source */
};

_Static_assert(sizeof(struct tip_source) == 20, "tip_source");
