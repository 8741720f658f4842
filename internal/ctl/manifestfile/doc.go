// Package manifestfile reads manifests from the files, folders and standard input that a command names by -f, and
// gives errors the lines of their files.
package manifestfile
