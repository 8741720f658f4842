// Package pkt builds valid frames for tests, changes one thing of them, and decodes what a
// program made of them.
//
// A Packet says what a frame holds in words; Frame serialises it with right lengths and
// checksums, Decode reads a frame back and refuses one whose lengths or checksums are wrong, so
// Decode(p.Frame()) equals p. A test that wants a wrong frame writes into the bytes of a right
// one at the offsets that L3 and L4 give.
package pkt
