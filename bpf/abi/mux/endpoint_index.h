/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "abi/enum.h"
#include "abi/mux/endpoint.h"

/*
 * Index of endpoints by a hash of their keys: a word is the id of the endpoint with that hash, or
 * one of these. It is read before the kernel's hash table, which takes three times as long.
 */
enum endpoint_index_entry {
	ENDPOINT_INDEX_NONE = 0, /* no endpoint has this hash */
	ENDPOINT_INDEX_COLLISION = 0xffffffff, /* several have it: search `endpoints` */
};

enum endpoint_index_layout {
	ENDPOINT_INDEX_PER_ROW = 16,
};
ABI_ENUM(endpoint_index_layout);

struct endpoint_index_row {
	enum endpoint_index_entry ids[ENDPOINT_INDEX_PER_ROW];
};

/* Key and value of a row of `endpoints`, by id. User space stores each of the words at once. */
struct endpoint_row {
	struct endpoint_key key;
	struct endpoint endpoint;
};

_Static_assert(sizeof(struct endpoint_row) == 64, "endpoint_row");
