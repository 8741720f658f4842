// Package alloc gives out rows of the mux's tables: single ones by their ids, and slices of flat tables by a buddy
// allocator. It knows no table, only numbers.
package alloc
