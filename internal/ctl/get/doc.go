// Package get is the command weir get: it lists the resources of the managers, a file for each noun. The columns are
// those of package table.
package get
