/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"

#include "abi/enum.h"

/*
 * The Fast Bypass TCP option (FBT; NGLB, section IV-A): the first option of a client's segment that
 * a mux sends on to the server's host. It names the client's virtual network and host, so that the
 * server's host answers the client's host past the muxes. An experimental option (RFC 4727,
 * RFC 6994).
 */
enum fbt_format {
	FBT_KIND = 253,
	FBT_LENGTH = 16,
	FBT_EXID = 0x5752,
	FBT_VERSION = 1, /* the low bits of `bits` */
	FBT_VERSION_MASK = 0x0f,
	FBT_NUMBER = 0x10, /* host is the client host's number, not its IPv4 address */
	FBT_VIA = 0x20, /* answers go by a mux */
	FBT_KEY_SHIFT = 6, /* the low bits of the id of the key */
	FBT_KEYS = 4,
	FBT_MAC_OFFSET = 12,
};
ABI_ENUM(fbt_format);

struct fbt {
	__u8 kind;
	__u8 length;
	__be16 exid;
	__u8 vni[3];
	__u8 bits;
	__be32 host;
	__u32 mac; /* low half of SipHash-2-4, the low byte first */
};

/* A key of one receiving host. */
struct fbt_key {
	__u64 key[2];
	__u32 id; /* 0: none */
	__u32 pad;
};

/* By the low bits of the id. */
struct fbt_keys {
	struct fbt_key rows[FBT_KEYS];
};

_Static_assert(sizeof(struct fbt) == FBT_LENGTH, "fbt");
_Static_assert(__builtin_offsetof(struct fbt, mac) == FBT_MAC_OFFSET, "fbt.mac");
_Static_assert(sizeof(struct fbt_key) == 24, "fbt_key");
_Static_assert(sizeof(struct fbt_keys) == 96, "fbt_keys");
