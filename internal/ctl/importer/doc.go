// Package importer turns configurations of keepalived and IPVS into manifests, and says what has no counterpart.
//
//	token.go      words, braces and comments of keepalived.conf
//	keepalived.go virtual_server blocks
//	ipvsadm.go    lines of ipvsadm-save -n
//	service.go    what both have in common, and the manifests of it
//	command.go    the command import
//
// It is pure but for the command: text in, manifests and notes out, in bounds.
package importer
