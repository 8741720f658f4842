/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Admission: which outer source may send which packets to a tunnel of this host. admit() alone
 * decides, by the outer source, the chain step and the inner packet. Before it nothing is replied,
 * counted in a session, or delivered.
 *
 *                   IP-in-IP             GUE, step NONE or QUERY   GUE, a later step
 *   mux             everything           everything                nothing
 *   chain peer      of multipath         nothing                   packets of their endpoint
 *   Fastpath peer   its own connection   nothing                   nothing
 *   switch          to VIPs it holds     likewise, of plain GUE    nothing
 *   host of a VIP   to its endpoints     to the VIP, STEERED       nothing
 *   others          nothing              nothing                   nothing
 *
 * The steps and kinds of Multipath TCP are taken from chain peers of endpoints that have it.
 * What hosts of a VIP send is taken only while a switch holds it, and STEERED of them alone.
 * Fastpath control messages are not subject to it: they are authenticated by themselves.
 */
#pragma once

#include "agent/fastpath.h"
#include "agent/icmp.h"
#include "agent/chain.h"
#include "agent/steer.h"

/* Finds the NAT rule, and by it what the inner packet is. */
static __always_inline enum content content_find(struct rx_ctx *a)
{
	if (a->rare)
		return a->rare;
	if (protocol_is_icmp(a->inner.protocol))
		return a->inner.destination_port ? CONTENT_ECHO : CONTENT_ERROR;
	a->key.vip = a->inner.destination;
	a->key.tunnel = a->outer.destination;
	a->key.port = a->inner.destination_port;
	a->key.protocol = a->inner.protocol;
	a->key.pad = 0;
	return rule_find(&a->key, &a->rule) ? CONTENT_ENDPOINT : CONTENT_ANSWER;
}

/* The connection of the inner packet, as its workload sees it. Returns false if there is none. */
static __always_inline bool admit_connection(const struct rx_ctx *a, struct session_key *key)
{
	struct snat_port_key port_key = {
		.vip = a->inner.destination,
		.remote = a->inner.source,
		.port = a->inner.destination_port,
		.remote_port = a->inner.source_port,
		.protocol = a->inner.protocol,
	};
	const struct snat_port *port;

	key->client = a->inner.source;
	key->client_port = a->inner.source_port;
	key->protocol = a->inner.protocol;
	switch (a->content) {
	case CONTENT_ENDPOINT:
		key->dip = a->rule.dip;
		key->dip_port = a->rule.port;
		return true;
	case CONTENT_ANSWER:
		port = settings.snat ? bpf_map_lookup_elem(&snat_ports, &port_key) : NULL;
		if (!port)
			return false;
		key->dip = port->dip;
		key->dip_port = port->dip_port;
		return true;
	case CONTENT_ECHO:
	case CONTENT_ERROR:
	case CONTENT_PING:
	case CONTENT_FRAGMENT:
	case CONTENT_REFUSED:
		return false;
	}
	return false;
}

/* Admits packets of an endpoint that another backend of it forwards. */
static __noinline enum verdict admit_from_peer(const struct rx_ctx *a)
{
	return a->content == CONTENT_ENDPOINT && chain_is_from_peer(a)
		       ? VERDICT_NONE
		       : VERDICT_DROP_NOT_CHAIN_PEER;
}

/*
 * What GRO has merged of a subflow that this host has, and that has no connection past the muxes: a
 * chain peer hands it on in IP alone, see forward_in_ip.h.
 */
static __always_inline bool admit_subflow(struct rx_ctx *a)
{
	if (!(a->rule.flags & NAT_RULE_MULTIPATH) || a->content != CONTENT_ENDPOINT)
		return false;
	a->tunnel.other = a->outer.source;
	if (admit_from_peer(a))
		return false;
	a->tunnel.step = GUE_CHAIN_HOLDER;
	return true;
}

/* Admits what switches bring and hosts steer, and connections past the muxes by their peer. */
static __always_inline enum verdict admit_past_muxes(struct rx_ctx *a)
{
	struct session_key key = {};

	a->from = admit_from_switch(a);
	if (a->from)
		return VERDICT_NONE;
	if (admit_merged(a)) {
		a->from = STEER_HOST;
		return VERDICT_NONE;
	}
	if (a->tunnel.entropy || !admit_connection(a, &key))
		return VERDICT_DROP_NOT_A_MUX;
	if (!bpf_map_lookup_elem(&fastpath, &key) && admit_subflow(a))
		return VERDICT_NONE;
	a->past_muxes = true;
	return fastpath_admit(a, &key);
}

/* By the step, and of what hosts tell of subflows by the kind: is it for chain peers alone? */
enum admission {
	ADMIT_UNKNOWN, /* nobody may send that */
	ADMIT_FROM_MUX, /* or past them */
	ADMIT_FROM_PEER,
	ADMIT_MULTIPATH, /* from a chain peer of an endpoint whose subflows are handed on */
};

static __always_inline enum admission admission_of_packet(enum gue_chain step)
{
	switch (step) {
	case GUE_CHAIN_NONE:
	case GUE_CHAIN_QUERY:
		return ADMIT_FROM_MUX;
	case GUE_CHAIN_FORWARDED:
	case GUE_CHAIN_FINAL:
		return ADMIT_FROM_PEER;
	case GUE_CHAIN_HOME:
	case GUE_CHAIN_HOME_NEXT:
	case GUE_CHAIN_HOLDER:
		return ADMIT_MULTIPATH;
	}
	return ADMIT_UNKNOWN;
}

static __always_inline enum admission admission_of(const struct tunnel *t)
{
	enum gue_chain step = t->step;

	switch (t->kind) {
	case GUE_KIND_PACKET:
	case GUE_KIND_FRAGMENT:
		return admission_of_packet(step);
	case GUE_KIND_TOKEN:
		return step >= GUE_CHAIN_HOME ? ADMIT_MULTIPATH : ADMIT_UNKNOWN;
	case GUE_KIND_JOINED:
		return step == GUE_CHAIN_HOLDER ? ADMIT_MULTIPATH : ADMIT_UNKNOWN;
	case GUE_KIND_STEERED: /* by a way of its own */
	case GUE_KIND_RELAY: /* for muxes */
		break;
	}
	return ADMIT_UNKNOWN;
}

/*
 * May the outer source send this packet? An enum verdict, NONE: yes. Not static: the verifier looks
 * at it once.
 */
__noinline int admit(struct rx_ctx *a __arg_nonnull)
{
	enum admission admission;

	a->past_muxes = false;
	a->from = 0;
	if (a->tunnel.kind == GUE_KIND_STEERED && a->tunnel.step <= GUE_CHAIN_QUERY) {
		a->tunnel.kind = GUE_KIND_PACKET; /* if it is chained, it is no more */
		return admit_steered(a);
	}
	admission = admission_of(&a->tunnel);
	if (admission == ADMIT_FROM_MUX)
		return address_is_mux(&a->outer.source) ? VERDICT_NONE : admit_past_muxes(a);
	if (admission == ADMIT_UNKNOWN)
		return VERDICT_DROP_GUE_UNKNOWN;
	if (admission == ADMIT_MULTIPATH && !(a->rule.flags & NAT_RULE_MULTIPATH))
		return VERDICT_DROP_NOT_CHAIN_PEER;
	return admit_from_peer(a);
}
