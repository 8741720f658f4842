/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/shared/address.h"

/* The addresses of an outer header, both of one family. */
struct tunnel {
	struct address source;
	struct address destination;
};

_Static_assert(sizeof(struct tunnel) == 32, "tunnel");
