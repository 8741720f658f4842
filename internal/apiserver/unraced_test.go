//go:build !race

package apiserver

// raced says that the race detector runs, which takes memory of its own.
const raced = false
