// Package change holds the commands that change what users want of the installation: weir apply, edit, patch, delete,
// backend, prefixlist, drain and undrain. With --wait they return when every mux runs the change, or the switch holds nothing.
package change
