/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"

#include "abi/enum.h"

/*
 * GUE, variant 0 (draft-ietf-intarea-gue, section 3), with no optional fields. What Weir has to
 * say stands in the private data: nothing at all, or struct gue_weir and, if its step is not
 * GUE_CHAIN_NONE, the tunnel of another backend: 4 bytes when it is IPv4, else 16; hlen says
 * which.
 */
enum gue_format {
	GUE_PORT = 6080,
	GUE_HLEN_MASK = 0x1f, /* of the first byte: 32-bit words behind the first one */
	GUE_WEIR_VERSION = 1,
	GUE_WEIR_WORDS = 2, /* hlen of struct gue_weir alone */
	/* Bytes: IPv6, UDP, GUE with its fields, and the tunnel of another backend. */
	OUTER_HEADER_MAX = 40 + 8 + 4 + 8 + 16,
	/*
	 * Of connections that began behind a tunnel of IPv4: in IPv6 to another backend, which it
	 * names, while their bucket moves. A switch's VXLAN in IPv4 has 50, IPv4 that names
	 * IPv6 56.
	 */
	OUTER_HEADER_IPV4 = 40 + 8 + 4 + 8 + 4,
};
ABI_ENUM(gue_format);

struct gue {
	__u8 head; /* version 0, no control message, hlen */
	__u8 protocol; /* IPPROTO_IPIP or IPPROTO_IPV6: of the packet inside */
	__be16 flags;
};

/* Chain step: how far a packet of unknown connection was forwarded. It only grows: no loops. */
enum gue_chain {
	GUE_CHAIN_NONE = 0, /* deliver */
	GUE_CHAIN_QUERY =
		1, /* deliver if the connection is known, else forward to the other backend */
	GUE_CHAIN_FORWARDED = 2, /* deliver if the connection is known, else send it back */
	GUE_CHAIN_FINAL = 3, /* sent back: deliver */

	/* Of a further subflow of Multipath TCP; the other tunnel is the one it first came to. */
	GUE_CHAIN_HOME = 4, /* to the first home of its token, which knows who has it */
	GUE_CHAIN_HOME_NEXT = 5, /* to the second one, for the first does not */
	GUE_CHAIN_HOLDER = 6, /* to the host that has the connection: deliver */
};

enum gue_kind {
	GUE_KIND_PACKET = 0,
	GUE_KIND_FRAGMENT = 1, /* inside is a fragment; the ports are its datagram's */
	GUE_KIND_RELAY = 2, /* between muxes: a fragment for the one that keeps its datagram */
	GUE_KIND_STEERED = 3, /* between hosts: a switch brought it to another one than serves it */
	/* Between hosts, never delivered: the other tunnel has the connection of the packet. */
	GUE_KIND_TOKEN = 4, /* its token, in place of the ports: to a home, or from it to ask */
	GUE_KIND_JOINED = 5, /* told to the host that the subflow's SYN came to */
};

struct gue_weir {
	__u8 version;
	__u8 step; /* enum gue_chain */
	__u8 kind; /* enum gue_kind */
	__u8 reserved;
	__be16 source_port; /* of a fragment's datagram; of step HOLDER, see MULTIPATH_ASKS; else 0
			     */
	__be16 destination_port;
};

_Static_assert(sizeof(struct gue) == 4, "gue");
_Static_assert(sizeof(struct gue_weir) == 8, "gue_weir");
