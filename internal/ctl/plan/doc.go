// Package plan is the command weir plan, a file for each of its commands. Package planinput reads what they are given,
// package plan below internal computes.
package plan
