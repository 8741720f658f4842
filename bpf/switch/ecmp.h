/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The choice of a member, as ASICs make it: a CRC of the packet's fields, of which some bits choose
 * a row of the group. No property of it is Weir's, and no two switches agree.
 */
#pragma once

#include "net/packet.h"
#include "switch/maps.h"

/* A CRC, four bytes at a time. */
static __always_inline __u32 crc_word(__u32 crc, __u32 word)
{
	crc ^= word;
	return vendor.table[3][crc & 0xff] ^ vendor.table[2][crc >> 8 & 0xff] ^
	       vendor.table[1][crc >> 16 & 0xff] ^ vendor.table[0][crc >> 24];
}

static __always_inline __u32 crc_byte(__u32 crc, __u8 byte)
{
	return crc >> 8 ^ vendor.table[0][(crc ^ byte) & 0xff];
}

/* The words of an address folded into one, as ASICs do: of IPv4 all but the last are constant. */
static __always_inline __u32 fold(const struct address *a)
{
	return a->words[0] ^ a->words[1] ^ a->words[2] ^ a->words[3];
}

/* 16 bits. Fragments, and what is neither TCP nor UDP, have no ports. */
static __always_inline __u32 vendor_hash(const struct packet *p, __u32 ports)
{
	__u32 crc = crc_word(vendor.seed, fold(&p->source));

	crc = crc_word(crc, fold(&p->destination));
	crc = crc_word(crc, ports);
	return crc_byte(crc, p->protocol) >> (vendor.offset & 15) & 0xffff;
}

/* The row of table tunnels of the member that the hash chooses. */
static __always_inline __u32 *choose(const struct host *host, __u32 hash)
{
	/* Read once: a row that another host takes over meanwhile is not to be mixed. */
	__u64 group = *(volatile __u64 *)host;
	__u32 size = group >> 32, row = (__u32)group + (hash * size >> 16);

	return bpf_map_lookup_elem(&ecmp, &row);
}
