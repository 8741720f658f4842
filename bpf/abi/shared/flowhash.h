/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"

/* The pool's secret: one word for each word of the hashed five-tuple. */
struct flowhash_key {
	__u32 words[10];
};

_Static_assert(sizeof(struct flowhash_key) == 40, "flowhash_key");
