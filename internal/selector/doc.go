// Package selector reads label selectors, as "app=shop,tier!=test,zone in (a,b),canary,!old", and says
// which labels fit. The language is that of Kubernetes: its requirements are joined by commas, and all
// must hold; != and notin also hold where the label is missing.
//
// Pure: no I/O, no clock, no state.
package selector
