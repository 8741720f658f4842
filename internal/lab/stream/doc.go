// Package stream is a client that holds on: many streams to one service, each with data in both
// directions at a bounded rate for as long as the run lasts, and each byte verified. It tells which
// streams broke, when, why, and whose they were.
//
// A stream is a TCP connection, opened as an HTTP request to upgrade and then used freely, or a flow
// of UDP datagrams from one port. The server is that of package echo. It keeps state for each: the
// kernel's of a connection, its own of a flow. So a stream that reaches another server is noticed at once.
package stream
