// Package ctl is weir, the command line of an operator. Each of its packages holds the commands of a purpose:
//
//	get, describe    show resources, a file for each noun
//	change           apply, edit, patch, delete, backend, prefixlist, drain: change resources, and wait for the muxes
//	snat             show and reclaim the ports of source NAT
//	diagnose         status, top, explain, observe, capture, doctor
//	cluster          users, tokens, certificates, audit, backup, versions
//	join             makes a machine a member of a cluster
//	importer         manifests of keepalived's and IPVS's configuration
//	uiproxy          ui: the web page, as the user of the configuration
//	bundle           what helps others to help, without secrets
//	placement        where VIPs are of switches, why, and where they would be
//	plan             plan a network from files, and record traffic
//
// and what they share:
//
//	session          the connection to the managers, completion, lists page by page, errors of usage, watching, progress
//	table            tables for people: the columns of each noun
//	output           the formats: table, JSON, YAML, names; colours
//	manifestfile     manifests from files, folders and standard input
//
// Results go to standard output, everything else to standard error. An error is one line that names the thing, the
// reason and what to do; what is wrong with manifests follows line by line.
//
// The program ends with 0 when all went well, 1 when something failed or was refused, 2 when it was called wrongly, 3
// when apply or delete changed the desired state but not every mux ran it in time.
package ctl
