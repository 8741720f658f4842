// Package change holds the commands that change what users want of the installation: weir apply, edit, patch, delete
// and prefixlist. With --wait they return when every mux runs the change.
package change
