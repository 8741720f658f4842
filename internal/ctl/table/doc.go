// Package table lays out what weir shows to people: a Table aligns columns, and each noun of the API has a file with
// its columns, in vip.go those of weir get vips, and with the words that its cells share with weir describe, status
// and top.
package table
