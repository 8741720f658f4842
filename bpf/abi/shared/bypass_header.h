/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"

#include "abi/enum.h"
#include "abi/shared/fbt.h"

/*
 * What the FBT says, of a packet that can't have one: of UDP, and of TCP whose options leave no
 * room. The header stands between the IP header of the packet inside VXLAN and what followed that,
 * has the form of IPv6's extension headers (RFC 6564) and an experimental protocol number
 * (RFC 3692). Only muxes make it, for hosts with servers. The VNI is the VXLAN header's.
 *
 * Its MAC is that of the option which says the same, whose kind and length are the header's first
 * two bytes; the sequence number is TCP's, or 0.
 */
enum bypass_header_format {
	BYPASS_HEADER_PROTOCOL = 253,
	BYPASS_HEADER_LENGTH = 16,
	BYPASS_HEADER_WORDS = 1, /* of 8 bytes, without the first */
};
ABI_ENUM(bypass_header_format);

struct bypass_header {
	__u8 next; /* protocol of what follows */
	__u8 length; /* BYPASS_HEADER_WORDS */
	__be16 client_port; /* of the datagram's flow, or the connection */
	__be16 vip_port;
	__u8 reserved;
	__u8 bits; /* as in struct fbt */
	__be32 host;
	__u32 mac;
};

_Static_assert(sizeof(struct bypass_header) == BYPASS_HEADER_LENGTH, "bypass_header");
_Static_assert(sizeof(struct bypass_header) == sizeof(struct fbt), "of one size, so of one MTU");
