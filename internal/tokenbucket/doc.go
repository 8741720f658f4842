// Package tokenbucket limits the rates of many callers with a token bucket for each name.
package tokenbucket
