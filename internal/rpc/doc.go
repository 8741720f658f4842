// Package rpc is the client of a manager: it finds one that answers, makes calls again that may be made again, follows
// the stream of a mux or host, and refuses what a manager says that is behind what the node has seen.
//
// Errors keep their fields on the wire, as google.rpc.BadRequest details, and come out of a Client as *Error.
package rpc
