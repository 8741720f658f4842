/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once

#include "kernel.h"

#include "abi/enum.h"

/* VXLAN (RFC 7348): an Ethernet frame of a virtual network in UDP. */
enum vxlan_format {
	VXLAN_PORT = 4789,
	VXLAN_FLAGS = 0x08, /* the VNI is valid; all other flags are reserved */
	/*
	 * The route flag (NGLB, section IV-A): "the client's host has an agent". It stands in the
	 * reserved byte behind the VNI, only from hosts to muxes: kernels drop what has it.
	 */
	VXLAN_ROUTE = 0x57,
	/*
	 * An answer that a server's host sends to a mux, for it to send on (NGLB, section II): that
	 * byte is this and the low bits of the key's id. The three before the VNI are the number of
	 * the client's host, and the inner frame's source is a MAC: see net/answer.h.
	 */
	VXLAN_ANSWER = 0x58,
	VXLAN_ANSWER_KEY = 0x03,
	/*
	 * Between a client's and a server's host: that byte is this and the low bits of the key's
	 * id. The inner frame has a ticket: see overlay/ticket.h.
	 */
	VXLAN_TICKET = 0x5c,
	VXLAN_TICKET_KEY = 0x03,
	VXLAN_VNI_MAX = (1 << 24) - 1,
};
ABI_ENUM(vxlan_format);

struct vxlan {
	__u8 flags;
	__u8 reserved[3];
	__u8 vni[3];
	__u8 route; /* VXLAN_ROUTE, VXLAN_ANSWER, VXLAN_TICKET or 0 */
};

_Static_assert(sizeof(struct vxlan) == 8, "vxlan");
