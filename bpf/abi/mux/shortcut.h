/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/enum.h"
#include "abi/mux/endpoint.h"

/*
 * The way from a packet to its endpoint without the kernel's hash table, which takes three times
 * as long. A hash of the key chooses a shortcut, and that is the endpoint's id, or one of these.
 */
enum shortcut {
	SHORTCUT_NONE = 0, /* no endpoint has this hash */
	SHORTCUT_SHARED = 0xffffffff, /* several have it: `endpoints` knows */
};

enum shortcut_layout {
	SHORTCUTS_PER_ROW = 16,
};
ABI_ENUM(shortcut_layout);

struct shortcut_row {
	enum shortcut ids[SHORTCUTS_PER_ROW];
};

/* What `endpoints` has, by id. User space stores each of the words at once. */
struct endpoint_row {
	struct endpoint_key key;
	struct endpoint endpoint;
};

_Static_assert(sizeof(struct endpoint_row) == 64, "endpoint_row");
