// Package load is a client that makes many small HTTP requests and tells what it noticed. Each
// attempt is a TCP connection of its own unless asked otherwise, and it must end within a timeout.
//
// Two ways to drive it: Concurrency workers, each with its next request as soon as the last is
// answered; or Rate requests a second, whether earlier ones are answered or not, which keeps asking
// at the same pace while the service is away and so measures for how long.
package load
