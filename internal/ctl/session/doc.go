// Package session holds what every command of weir shares: the connection to the managers, the format of the output,
// completion of names, lists that are read page by page, and errors of wrong usage.
package session
