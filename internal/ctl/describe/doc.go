// Package describe is the command weir describe: all there is to know of one resource, a file for each noun.
package describe
