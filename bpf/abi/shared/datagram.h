/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"

#include "abi/enum.h"

/*
 * Ports and destination of fragmented datagrams, from their first fragments, for those that follow:
 * a table of sets of eight cells. A hash of the fields that all fragments share selects the set,
 * and identifies the datagram.
 *
 * CPUs share cells without locks (Hyatt and Mann's lockless transposition table): check is the hash
 * xor the words, so a cell that two CPUs wrote at once matches neither datagram.
 */
enum datagram_layout {
	DATAGRAM_CELLS = 8,
	DATAGRAM_WORDS = 2,
	DATAGRAM_LIFE = 1907, /* ticks, 2 s: IP ids are reused */
	DATAGRAM_TICK_SHIFT = 20, /* a tick is 2^20 ns: a little more than a millisecond */
};
ABI_ENUM(datagram_layout);

struct datagram_cell {
	__u64 check;
	__u64 words[DATAGRAM_WORDS];
	__u32 seen; /* tick of the coarse monotonic clock */
	__u32 owner; /* 0: the cell is free */
};

struct datagram_set {
	struct datagram_cell cells[DATAGRAM_CELLS];
};

_Static_assert(sizeof(struct datagram_cell) == 32, "datagram_cell"); /* two in a cache line */
_Static_assert(sizeof(struct datagram_set) == 256, "datagram_set");
