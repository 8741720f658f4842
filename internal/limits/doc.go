// Package limits says how large a request to a manager may be, in one table: the bytes and the messages of a request by
// procedure, the length of each text and the number of elements of each list and map by field.
//
// The bytes count after decompression. Messages are counted before the request is parsed, as an empty message in a list
// is 2 bytes on the wire and some hundred in memory. Texts and lists are judged when the request is parsed; both ways
// serve gRPC, gRPC-Web, Connect and REST alike.
//
// A field that is reachable from a request and is not in the table fails a test, and has the default bounds until then.
package limits
